#include "manager/arenas/compactor.h"

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "manager/state/state.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;

/// Files of one chunk each in one arena, compacted when a chunk does not fit.
struct Arena {
  explicit Arena(std::uint64_t bytes) : arena_bytes(bytes) { space.add({1}, bytes, true); }

  void settle() {
    for (const FreedExtent& freed : state.take_freed()) {
      space.release(freed.extent.benefactor, {freed.extent.offset, freed.bytes});
    }
  }
  bool compact(std::uint64_t need) {
    const CompactionPlan plan = plan_compaction(state, space, {1}, need, 2 * need);
    MoveChunks command{{1}, {}};
    for (const auto& move : plan.moves) {
      // A move's target must not overlap its source.
      const std::uint64_t bytes = extent_bytes(move.length);
      REQUIRE((move.to_offset + bytes <= move.from_offset ||
               move.from_offset + bytes <= move.to_offset));
      command.moves.push_back({move.from_offset, move.to_offset});
    }
    REQUIRE(state.apply(command));
    settle();
    moved += plan.moves.size();
    return !plan.moves.empty();
  }
  bool write(std::uint32_t length) {
    const std::uint64_t bytes = extent_bytes(length);
    auto range = space.take({1}, bytes, bytes);
    for (int round = 0; !range && round < 200 && space.free_bytes({1}) >= bytes; ++round) {
      if (!compact(bytes)) break;
      range = space.take({1}, bytes, bytes);
    }
    if (!range) return false;
    CommitVersion commit;
    commit.file = FileId{++last};
    commit.create = NewName{kRootFile, std::to_string(last), 0644, 0, 0, 0, {}};
    commit.written.chunks = {{{}, length, 0, {{BenefactorId{1}, range->offset}}}};
    commit.written.slices = {{0, length, 0, 0}};
    REQUIRE(state.apply(commit));
    files.push_back(last);
    used += bytes;
    return true;
  }
  void remove(std::size_t at) {
    const FileId id{files[at]};
    used -= extent_bytes(static_cast<std::uint32_t>(state.file(id)->newest.size_bytes));
    REQUIRE(state.apply(RemoveName{kRootFile, std::to_string(files[at])}));
    settle();
    files[at] = files.back();
    files.pop_back();
  }
  /// Checks that extents and free ranges fill the arena without overlap.
  void check() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    state.chunks().for_each([&](ChunkIndex index) {
      const Chunk chunk = state.chunks().get(index);
      all.emplace_back(chunk.copies.at(0).offset, extent_bytes(chunk.length));
    });
    std::sort(all.begin(), all.end());
    std::uint64_t end = 0;
    for (const auto& [offset, bytes] : all) {
      REQUIRE(offset >= end);
      end = offset + bytes;
    }
    REQUIRE(end <= arena_bytes);
    REQUIRE(used + space.free_bytes({1}) == arena_bytes);
  }

  std::uint64_t arena_bytes;
  State state;
  Space space;
  std::vector<std::uint64_t> files;
  std::uint64_t last = 10;
  std::uint64_t used = 0;
  std::uint64_t moved = 0;
};

}  // namespace

TEST_CASE("90 % of an arena is usable after 10 cycles of filling and deleting random sizes") {
  const std::uint32_t largest = GENERATE(std::uint32_t{1 << 20}, std::uint32_t{4 << 20});
  Prng prng(largest);
  Arena arena(128 * limits::kMiB);
  for (int cycle = 0; cycle < 10; ++cycle) {
    while (arena.write(static_cast<std::uint32_t>(1 + prng.below(largest)))) {
    }
    arena.check();
    INFO("cycle " << cycle << ": " << arena.used * 100 / arena.arena_bytes << " %");
    REQUIRE(arena.used >= arena.arena_bytes / 10 * 9);
    for (std::size_t i = arena.files.size() / 2; i > 0; --i) {
      arena.remove(prng.below(arena.files.size()));
    }
    arena.check();
  }
  CHECK(arena.moved > 0);
}
