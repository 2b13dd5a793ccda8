#include "manager/drain/evictor.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// Files are checked ahead for this many bytes, so that a writer seldom waits for a check.
constexpr std::uint64_t kCheckAheadBytes = limits::kGiB;
constexpr Duration kSeenFor = 3s;  ///< long enough for several checks of files that share chunks
/// After a failed check: each check of storage that hangs blocks a thread.
constexpr Duration kCheckAgain = 5s;
constexpr std::uint64_t kAny = ~std::uint64_t{0};

}  // namespace

/// Visits evictable files that no session or reader uses, the oldest first.
template <class Visit>
void Evictor::for_each_candidate(const Filter& counts, Visit visit) const {
  for (const auto& [sequence, id] : pool_.state().commits().evictable()) {
    const File& file = *pool_.state().file(id);
    const auto found = pins_without_bytes_.find(id);
    const std::uint32_t needless = found == pins_without_bytes_.end() ? 0 : found->second;
    if (file.newest.pins <= needless && counts(file) && !visit(file)) return;
  }
}

/// Chooses about `bytes` bytes of versions with a sequence up to `newest`. A chunk is chosen only
/// if all versions that refer to it belong to files for which `counts` is true. With `on`, a chunk
/// must have a copy on that benefactor.
Evictor::Choice Evictor::choose(std::uint64_t bytes, std::uint64_t newest, const Filter& counts,
                                BenefactorId on) const {
  const State& state = pool_.state();
  const ChunkTable& chunks = state.chunks();
  // Drained versions may share chunks. A chunk may go when only candidates refer to it.
  std::unordered_map<ChunkIndex, std::uint32_t> own;
  for_each_candidate(counts, [&](const File& file) {
    for (const PackedSlice& slice : file.newest.slices) ++own[slice.chunk];
    return true;
  });
  const auto is_elsewhere = [&](ChunkIndex chunk) {
    const auto here = [&](const Extent& copy) { return copy.benefactor == on; };
    return on && std::ranges::none_of(chunks.get(chunk).copies, here);
  };
  Choice choice;
  std::unordered_set<ChunkIndex> taken;
  for_each_candidate(counts, [&](const File& file) {
    if (file.newest.sequence > newest) return false;
    Evict command{file.id, file.newest.version, {}};
    for (std::uint32_t i = 0; i < file.newest.slices.size(); ++i) {
      const ChunkIndex chunk = file.newest.slices[i].chunk;
      const Stripe* const stripe = state.stripes().of(chunk);
      const std::uint32_t expected = own[chunk] + (stripe == nullptr ? 0 : 1);
      // More references than expected come from other versions (perhaps pinned) or holds (rule M4).
      if (!chunks.has_copies(chunk) || chunks.references(chunk) > expected ||
          chunks.undrained(chunk) > 0 ||
          (stripe != nullptr && !state.contents().may_be_lost(*stripe)) || is_elsewhere(chunk) ||
          !taken.insert(chunk).second) {
        continue;
      }
      command.slices.push_back(i);
      choice.bytes += extent_bytes(chunks.length(chunk));
    }
    if (command.slices.empty()) return true;
    choice.commands.push_back(std::move(command));
    choice.newest = file.newest.sequence;
    return choice.bytes < bytes;
  });
  return choice;
}

bool Evictor::is_seen(const File& file) const {
  const auto seen = seen_.find(file.id);
  return seen != seen_.end() && seen->second.version == file.newest.version &&
         pool_.now() < seen->second.until;
}

bool Evictor::evict(std::uint64_t want_bytes, BenefactorId on) {
  const std::uint64_t bytes = std::max(want_bytes, limits::kGrantBytesDefault);
  const auto seen = [this](const File& file) { return is_seen(file); };
  std::erase_if(seen_, [this](const auto& each) { return pool_.now() >= each.second.until; });
  pins_without_bytes_ = sessions_.pins_without_bytes(pool_.state());
  const Choice oldest = choose(
      bytes, kAny, [](const File&) { return true; }, on);
  blocked_ = false;
  if (oldest.commands.empty()) return false;
  // Versions newer than the wanted ones stay in memory, although their files were seen.
  Choice now = choose(bytes, oldest.newest, seen, on);
  for (Evict& command : now.commands) {
    pool_.execute(std::move(command), [](const Result<Affected>&) {});
  }
  if (now.bytes < bytes) check_ahead(want_bytes, on);
  return now.bytes > 0 || checking_;
}

/// Returns the files to check before `choice` may be evicted, including files that only share
/// chunks with it. At most as many as one check takes.
std::vector<FileId> Evictor::unseen(const Choice& choice) const {
  const State& state = pool_.state();
  std::unordered_set<ChunkIndex> wanted;
  for (const Evict& command : choice.commands) {
    const PackedSlices& slices = state.file(command.file)->newest.slices;
    for (const std::uint32_t number : command.slices) wanted.insert(slices[number].chunk);
  }
  const auto is_wanted = [&](const PackedSlice& slice) { return wanted.count(slice.chunk) > 0; };
  const auto is_unseen = [&](const File& file) { return !drain_.moves(file) && !is_seen(file); };
  std::vector<FileId> out;
  for_each_candidate(is_unseen, [&](const File& file) {
    if (std::ranges::any_of(file.newest.slices, is_wanted)) out.push_back(file.id);
    return out.size() < limits::kDrainChecksMax;
  });
  return out;
}

void Evictor::check_ahead(std::uint64_t want_bytes, BenefactorId on) {
  if (checking_) {
    if (want_bytes > wanted_bytes_) wanted_on_ = on;
    wanted_bytes_ = std::max(wanted_bytes_, want_bytes);
    return;
  }
  const std::uint64_t bytes = std::max(want_bytes, kCheckAheadBytes);
  const auto files = unseen(choose(
      bytes, kAny, [](const File&) { return true; }, on));
  blocked_ = files.empty() || pool_.now() < check_after_;
  if (blocked_) return;
  checking_ = true;
  wanted_bytes_ = want_bytes;
  wanted_on_ = on;
  checks_.look_up(
      files, DrainChecks::Unknown::kIsBelieved, pool_.now() + limits::kCallDeadline,
      [this](const Result<DrainChecks::Found>& found) {
        checking_ = false;
        if (found) {
          for (const FileId id : found->there) {
            const File& file = *pool_.state().file(id);
            seen_[id] = {file.newest.version, pool_.now() + kSeenFor};
          }
          evict(wanted_bytes_, wanted_on_);
          return;
        }
        check_after_ = pool_.now() + kCheckAgain;
        log::warning(
            "memory of drained images is not given up, because the drain directory cannot be "
            "looked at: {}",
            describe(found.error()));
      });
}

}  // namespace stdchk::manager
