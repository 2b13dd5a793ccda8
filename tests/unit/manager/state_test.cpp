#include "manager/state/state.h"

#include <sys/stat.h>

#include <iterator>

#include "core/base/limits.h"
#include "manager/state/folders_of.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;

constexpr ClientId kNobody{};

Chunk chunk_at(std::uint64_t number, std::uint32_t length = 1000) {
  Chunk chunk;
  chunk.name.bytes[0] = static_cast<std::byte>(number);
  chunk.name.bytes[1] = static_cast<std::byte>(number >> 8);
  chunk.name.bytes[31] = std::byte{1};
  chunk.length = length;
  chunk.copies = {{BenefactorId{1}, number * 4096}};
  return chunk;
}

CommitVersion write(FileId file, std::uint64_t offset, const Chunk& chunk) {
  CommitVersion command;
  command.file = file;
  command.written.chunks = {chunk};
  command.written.slices = {{offset, chunk.length, 0, 0}};
  return command;
}

CommitVersion create(FileId file, std::string name, const Chunk& chunk, FileId parent = kRootFile) {
  CommitVersion command = write(file, 0, chunk);
  command.create = NewName{parent, std::move(name), 0644, 1, 2, 3, {}};
  return command;
}

std::vector<Command> snapshot_of(const State& state) {
  std::vector<Command> out;
  state.snapshot([&](Command command) { out.push_back(std::move(command)); });
  return out;
}

FileId find(const State& state, std::string_view name, FileId parent = kRootFile) {
  const auto found = state.lookup(parent, name, kNobody);
  return found ? (*found)->id : FileId{};
}

}  // namespace

TEST_CASE("equal chunks of two files are kept once and go with the last of them") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(create({11}, "b", chunk_at(1))));
  CHECK(state.chunks().chunk_count() == 1);
  REQUIRE(state.apply(RemoveName{kRootFile, "a"}));
  CHECK(state.take_freed().empty());
  REQUIRE(state.apply(RemoveName{kRootFile, "b"}));
  CHECK(state.take_freed() == std::vector<FreedExtent>{{{BenefactorId{1}, 4096}, 1088}});
  CHECK(state.files().size() == 1);
}

TEST_CASE("all may make names in the root of a pool, and none may take another user's") {
  CHECK(State().file(kRootFile)->mode == 01777);
}

TEST_CASE("a pinned version keeps its chunks while newer ones are committed") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.pin({10}, 1));
  REQUIRE(state.apply(write({10}, 0, chunk_at(2))));
  CHECK(state.take_freed().empty());
  REQUIRE(state.version({10}, 1) != nullptr);
  CHECK(state.contents().map_page(*state.version({10}, 1), 0, 10).chunks[0] == chunk_at(1));
  CHECK(state.contents().map_page(*state.version({10}, 0), 0, 10).chunks[0] == chunk_at(2));
  state.unpin({10}, 1);
  CHECK(state.version({10}, 1) == nullptr);
  CHECK(state.take_freed().size() == 1);
}

TEST_CASE("a removed file that is kept open loses its content with the last keep") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  state.keep({10});
  REQUIRE(state.apply(RemoveName{kRootFile, "a"}));
  REQUIRE(state.file({10}) != nullptr);
  CHECK(state.files().attributes(*state.file({10})).link_count == 0);
  CHECK(state.take_freed().empty());
  state.unkeep({10});
  CHECK(state.file({10}) == nullptr);
  CHECK(state.take_freed().size() == 1);
}

TEST_CASE("a pending file is seen by its viewers only, by all after its commit") {
  State state;
  const ClientId me{7};
  REQUIRE(state.pending().make({10}, {kRootFile, "a", 0600, 0, 0, 0, {}}, me, 5));
  state.keep({10});
  CHECK(state.lookup(kRootFile, "a", me).has_value());
  CHECK_FALSE(state.lookup(kRootFile, "a", ClientId{8}).has_value());
  CommitVersion commit = write({10}, 0, chunk_at(1));
  commit.create = state.pending().new_name({10});
  REQUIRE(commit.create);
  REQUIRE(state.apply(commit));
  CHECK(state.lookup(kRootFile, "a", ClientId{8}).has_value());
  CHECK_FALSE(state.pending().new_name({10}));
}

TEST_CASE("a pending file without a commit goes with its last keep") {
  State state;
  REQUIRE(state.pending().make({10}, {kRootFile, "a", 0600, 0, 0, 0, {}}, {7}, 5));
  state.keep({10});
  state.unkeep({10});
  CHECK(state.file({10}) == nullptr);
  CHECK_FALSE(state.lookup(kRootFile, "a", ClientId{7}).has_value());
  CHECK(state.file(kRootFile)->as_directory.pending_children.empty());
}

TEST_CASE("a pending file renamed over a committed one replaces it with its commit") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.pending().make({11}, {kRootFile, "tmp", 0600, 0, 0, 0, {}}, {7}, 5));
  state.keep({11});
  REQUIRE(state.pending().rename({11}, kRootFile, "a"));
  CHECK((*state.lookup(kRootFile, "a", ClientId{7}))->id == FileId{11});
  CHECK(find(state, "a") == FileId{10});
  CommitVersion commit = write({11}, 0, chunk_at(2));
  commit.create = state.pending().new_name({11});
  const auto outcome = state.apply(commit);
  REQUIRE(outcome);
  CHECK(outcome->replaced == FileId{10});
  CHECK(find(state, "a") == FileId{11});
  CHECK(state.file({10}) == nullptr);
}

TEST_CASE("a commit takes the bytes of its holes away, then the written goes over them") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  const std::uint64_t size = state.version({10}, 0)->size_bytes;
  CommitVersion commit = write({10}, 150, chunk_at(2, 10));
  commit.holes = {{100, 100}, {300, 50}};
  REQUIRE(state.apply(commit));
  const ChunkMap map = state.contents().map_page(*state.version({10}, 0), 0, 10);
  REQUIRE(map.slices.size() == 4);
  CHECK(map.slices[0] == Slice{0, 100, 0, 0});
  CHECK(map.slices[1] == Slice{150, 10, 0, 1});
  CHECK(map.slices[2] == Slice{200, 100, 200, 0});
  CHECK(map.slices[3].file_offset == 350);
  CHECK(state.version({10}, 0)->size_bytes == size);
  // Without its last bytes the chunk's space is free.
  CommitVersion all = commit;
  all.written = {};
  all.holes = {{0, size}};
  REQUIRE(state.apply(all));
  CHECK(state.version({10}, 0)->slices.empty());
  CHECK(state.version({10}, 0)->size_bytes == size);
  all.holes = {{5, 5}, {0, 5}};
  CHECK(state.apply(all).error().code == Code::kInvalidArgument);
}

TEST_CASE(
    "truncation inside a session drops the base above the cut, then the written goes over it") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  CommitVersion commit = write({10}, 600, chunk_at(2, 100));
  commit.cut_before = true;
  commit.cut_bytes = 500;
  commit.set_size = true;
  commit.size_bytes = 650;
  REQUIRE(state.apply(commit));
  const ChunkMap map = state.contents().map_page(*state.version({10}, 0), 0, 10);
  CHECK(map.slices == std::vector<Slice>{{0, 500, 0, 0}, {600, 50, 0, 1}});
  CHECK(state.files().attributes(*state.file({10})).size_bytes == 650);
}

TEST_CASE(
    "a map that names no chunk, too much of a chunk, or overlaps is refused and changes nothing") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  CommitVersion bad = write({10}, 0, chunk_at(2));
  bad.written.slices[0].chunk = 1;
  CHECK_FALSE(state.apply(bad));
  bad = write({10}, 0, chunk_at(2));
  bad.written.slices[0].chunk_offset = 1;
  CHECK_FALSE(state.apply(bad));
  bad = write({10}, limits::kFileBytesMax, chunk_at(2));
  CHECK_FALSE(state.apply(bad));
  CHECK(state.file({10})->newest.version == 1);
  CHECK(state.chunks().chunk_count() == 1);
}

TEST_CASE("rename moves trees, refuses cycles and replaces only what it may") {
  State state;
  REQUIRE(state.apply(AddDirectory{{20}, kRootFile, "d"}));
  REQUIRE(state.apply(AddDirectory{{21}, {20}, "e"}));
  REQUIRE(state.apply(create({10}, "a", chunk_at(1), {21})));
  CHECK(state.apply(RenameName{kRootFile, "d", {21}, "x"}).error().code == Code::kCrossesDirectory);
  REQUIRE(state.apply(create({11}, "f", chunk_at(2))));
  CHECK(state.apply(RenameName{kRootFile, "f", kRootFile, "d"}).error().code == Code::kIsDirectory);
  CHECK(state.apply(RenameName{kRootFile, "d", kRootFile, "f"}).error().code ==
        Code::kNotDirectory);
  CHECK(state.apply(RemoveName{kRootFile, "d", true}).error().code == Code::kNotEmpty);
  REQUIRE(state.apply(RenameName{{20}, "e", kRootFile, "e"}));
  CHECK(state.path(*state.file({10})) == "e/a");
  CHECK(state.file(kRootFile)->as_directory.subdirectories == 2);
  REQUIRE(state.apply(RenameName{kRootFile, "e", kRootFile, "d", false, true}));
  CHECK(state.path(*state.file({10})) == "d/a");
  REQUIRE(state.apply(RemoveName{kRootFile, "e", true}));
}

TEST_CASE("a restored snapshot is the same state, and so is the replayed journal") {
  std::vector<Command> journal;
  State state;
  const auto run = [&](Command command) {
    REQUIRE(state.apply(command));
    journal.push_back(std::move(command));
  };
  run(BeginEpoch{{3}});
  run(AddBenefactor{{1}, 11, 12, 1 << 20, "host"});
  run(AddDirectory{{20}, kRootFile, "d", 0755, 0, 0, 9, true});
  run(create({10}, "a", chunk_at(1), {20}));
  run(write({10}, 1000, chunk_at(2)));
  run(AddSymlink{{22}, kRootFile, "s", "d/a", 0, 0, 9, true});
  run(DrainStarted{{10}});
  run(Drained{{10}, 2});
  run(RenameName{{20}, "a", kRootFile, "b", false, false, 10, true, {{40}, 5}});
  msg::SetXattr xattr;
  xattr.file = {10};
  xattr.name = "user.k";
  xattr.value = "v";
  run(ChangeXattr{xattr, 11});
  run(Evict{{10}, 2, {0}});
  run(create({12}, "c", chunk_at(3)));
  run(Drained{{12}, 1});
  run(DrainLost{{12}, 1});
  run(create({13}, "e", chunk_at(6)));
  run(Drained{{13}, 1});
  run(Evict{{13}, 1, {0}});
  CommitVersion load = write({13}, 0, chunk_at(7));
  load.same_as = 1;
  run(load);
  run(MoveChunks{{1}, {{3 * 4096, 64}}});
  const std::vector<Command> expected = snapshot_of(state);
  State replayed;
  for (const Command& command : journal) REQUIRE(replayed.apply(command));
  CHECK(snapshot_of(replayed) == expected);
  State restored;
  for (const Command& command : expected) REQUIRE(restored.apply(command));
  CHECK(snapshot_of(restored) == expected);
  CHECK(restored.commits().undrained() == state.commits().undrained());
  CHECK(restored.commits().evictable() == state.commits().evictable());
  CHECK(restored.commits().logical_bytes() == state.commits().logical_bytes());
  CHECK(restored.chunks().stored_bytes() == state.chunks().stored_bytes());
}

TEST_CASE("M5: a chunk that an undrained version refers to cannot be evicted") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(create({11}, "b", chunk_at(1))));
  CHECK_FALSE(state.apply(Evict{{10}, 1, {0}}));
  REQUIRE(state.apply(Drained{{10}, 1}));
  CHECK_FALSE(state.apply(Evict{{10}, 1, {0}}));
  REQUIRE(state.apply(Drained{{11}, 1}));
  REQUIRE(state.apply(Evict{{10}, 1, {0}}));
  CHECK(state.take_freed().size() == 1);
  CHECK(state.contents().map_page(*state.version({11}, 0), 0, 1).chunks[0].copies.empty());
}

TEST_CASE(
    "M5: what is in the drain directory no more must be drained again, and stays until then") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(Drained{{10}, 1}));
  CHECK(state.commits().evictable().size() == 1);
  CHECK(state.apply(DrainLost{{10}, 2}).error().code == Code::kStale);
  REQUIRE(state.apply(DrainLost{{10}, 1}));
  CHECK(state.apply(DrainLost{{10}, 1}).error().code == Code::kStale);
  CHECK(state.commits().evictable().empty());
  CHECK(state.commits().undrained().size() == 1);
  CHECK_FALSE(state.apply(Evict{{10}, 1, {0}}));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.apply(Evict{{10}, 1, {0}}));
}

TEST_CASE("a drained version that memory gets back stays what it was, and drained") {
  State state;
  REQUIRE(state.apply(create({9}, "app.N1.T1", chunk_at(9))));
  CommitVersion commit = create({10}, "app.N0.T1", chunk_at(1, 2000));
  commit.mtime_ns = 55;
  REQUIRE(state.apply(commit));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.apply(Evict{{10}, 1, {0}}));
  REQUIRE(state.apply(create({11}, "b", chunk_at(3))));
  const VersionData& before = state.file({10})->newest;
  const std::uint64_t sequence = before.sequence;
  const std::uint64_t generation = state.set_generations().newest(kRootFile, {"app", 0, 1});
  REQUIRE(state.pin({10}, 1));

  CommitVersion load = write({10}, 0, chunk_at(4));
  load.written.chunks.push_back(chunk_at(5));
  load.written.slices.push_back({1000, 1000, 0, 1});
  load.mtime_ns = 77;
  load.opened = 3;
  load.copies = 2;
  load.same_as = 1;
  REQUIRE(state.apply(load));
  const VersionData& now = state.file({10})->newest;
  CHECK(now.version == 2);
  CHECK(now.drained);
  CHECK_FALSE(now.evicted);
  CHECK(now.sequence == sequence);
  CHECK(now.written == sequence);
  CHECK(now.opened == 0);
  CHECK(now.mtime_ns == 55);
  CHECK(now.size_bytes == 2000);
  CHECK(now.copies == 2);
  CHECK(state.contents().map_page(now, 0, 10).chunks.size() == 2);
  CHECK(state.contents().map_page(now, 0, 10).chunks[0].copies == chunk_at(4).copies);
  CHECK(state.set_generations().newest(kRootFile, {"app", 0, 1}) == generation);
  CHECK(state.sequence() == 3);
  CHECK(state.history().images == 3);
  CHECK(state.commits().undrained().count({sequence, {10}}) == 0);
  CHECK(state.commits().evictable().count({sequence, {10}}) == 1);
  // A reader of the previous version finds its bytes in their old place.
  CHECK(state.contents().needs_drained(*state.version({10}, 1)));
  CHECK(state.version({10}, 1)->aside == 0);
  State restored;
  for (const Command& command : snapshot_of(state)) REQUIRE(restored.apply(command));
  CHECK(snapshot_of(restored) == snapshot_of(state));
  CHECK(restored.file({10})->newest.drained);
  state.unpin({10}, 1);
  REQUIRE(state.apply(Evict{{10}, 2, {0, 1}}));
}

TEST_CASE("memory gets back only what is the newest version, drained, and all of it") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  CommitVersion load = write({10}, 0, chunk_at(2));
  load.same_as = 1;
  CHECK(state.apply(load).error().code == Code::kStale);
  REQUIRE(state.apply(Drained{{10}, 1}));
  CommitVersion wrong = write({10}, 0, chunk_at(2, 999));
  wrong.same_as = 1;
  CHECK(state.apply(wrong).error().code == Code::kInvalidArgument);
  wrong = write({10}, 1, chunk_at(2, 999));
  wrong.same_as = 1;
  CHECK(state.apply(wrong).error().code == Code::kInvalidArgument);
  CommitVersion other = create({11}, "b", chunk_at(2));
  other.same_as = 1;
  CHECK(state.apply(other).error().code == Code::kStale);
  CHECK(find(state, "b") == FileId{});
  CHECK(state.chunks().chunk_count() == 1);
  REQUIRE(state.apply(load));
  CHECK(state.apply(load).error().code == Code::kStale);
  REQUIRE(state.apply(RemoveName{kRootFile, "a"}));
  CHECK(state.apply(load).error().code == Code::kNotFound);
}

TEST_CASE("a version is drained only while it is the newest") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(write({10}, 0, chunk_at(2))));
  CHECK(state.apply(Drained{{10}, 1}).error().code == Code::kStale);
  CHECK(state.commits().undrained().size() == 1);
}

TEST_CASE("a file that loses its name is set aside first, and its versions say where") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.pin({10}, 1));
  auto replacing = create({11}, "a", chunk_at(2));
  replacing.mirror = true;
  REQUIRE(state.apply(replacing));
  REQUIRE(state.mirror_queue().size() == 1);
  const auto& [number, change] = *state.mirror_queue().begin();
  CHECK(change.kind == msg::MirrorKind::kSetAside);
  CHECK(change.path == "a");
  CHECK(change.file == FileId{10});
  CHECK(change.number == number);
  CHECK(state.version({10}, 1)->aside == number);
  // A commit to the nameless file also has its base in the set-aside file.
  REQUIRE(state.apply(write({10}, 5000, chunk_at(3))));
  CHECK(state.version({10}, 2)->aside == number);
  CHECK(state.version({11}, 1)->aside == 0);
}

TEST_CASE("an exchange is repeated as three renames through a temporary name") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(create({11}, "b", chunk_at(2))));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.apply(Drained{{11}, 1}));
  REQUIRE(state.apply(RenameName{kRootFile, "a", kRootFile, "b", false, true, 0, true}));
  std::vector<std::string> names;
  for (const auto& [number, change] : state.mirror_queue()) {
    CHECK(change.kind == msg::MirrorKind::kRename);
    names.push_back(change.path + ">" + change.other_path);
  }
  CHECK(names == std::vector<std::string>{"a>", "b>a", ">b"});
  const auto first = state.mirror_queue().begin()->second;
  const auto last = state.mirror_queue().rbegin()->second;
  CHECK(first.file == last.file);
  CHECK(first.number == last.number);
  // A restart keeps the number, because the queue's newest change has it.
  CHECK(last.number == state.mirror_queue().rbegin()->first);
}

TEST_CASE("an undrained file renamed over a drained one leaves it there until its own drain") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.apply(create({11}, "b", chunk_at(2))));
  REQUIRE(state.apply(RenameName{kRootFile, "b", kRootFile, "a", false, false, 0, true}));
  REQUIRE(state.mirror_queue().size() == 1);
  CHECK(state.mirror_queue().begin()->second.kind == msg::MirrorKind::kSetAside);
  REQUIRE(state.apply(RenameName{kRootFile, "a", kRootFile, "c", false, false, 0, true}));
  REQUIRE(state.mirror_queue().size() == 2);
  CHECK(state.mirror_queue().rbegin()->second.kind == msg::MirrorKind::kUnlink);
  CHECK(state.mirror_queue().rbegin()->second.path == "a");
}

TEST_CASE("chunks with homes are the same after a replay and in a restored snapshot") {
  std::vector<Command> journal;
  State state;
  const auto run = [&](Command command) {
    REQUIRE(state.apply(command));
    journal.push_back(std::move(command));
  };
  const auto at_home = [](FileId file, std::string name, std::uint64_t place, std::uint64_t home) {
    Chunk chunk = chunk_at(1);
    chunk.copies = {{BenefactorId{home == 0 ? 1 : home}, place}};
    CommitVersion command = create(file, std::move(name), chunk);
    if (home != 0) command.homes = {BenefactorId{home}};
    return command;
  };
  for (std::uint64_t id = 1; id <= 3; ++id) run(AddBenefactor{{id}, 11, id, 1 << 20, "host"});
  run(at_home({10}, "striped", 64, 0));
  run(at_home({11}, "on 2", 4096, 2));
  run(at_home({12}, "on 3", 4096, 3));
  run(at_home({13}, "again on 2", 4096, 2));
  CHECK(state.chunks().chunk_count() == 3);
  // The chunk at that place gets a copy. Other chunks of this name do not.
  const Chunk chunk = chunk_at(1);
  run(ChangeCopies{{{{{3}, 4096}, chunk.name, chunk.length, {{1}, 8192}, {}}}});
  run(Drained{{11}, 1});
  run(Drained{{13}, 1});
  run(Evict{{11}, 1, {0}});
  const auto copies = [](const State& of, const char* name) {
    const File* const file = of.file(find(of, name));
    return of.chunks().get(file->newest.slices.at(0).chunk).copies;
  };
  const std::vector<Command> expected = snapshot_of(state);
  State replayed;
  for (const Command& command : journal) REQUIRE(replayed.apply(command));
  State restored;
  for (const Command& command : expected) REQUIRE(restored.apply(command));
  for (const State* each : {&state, &replayed, &restored}) {
    CHECK(snapshot_of(*each) == expected);
    CHECK(each->chunks().chunk_count() == 3);
    CHECK(copies(*each, "striped") == std::vector<Extent>{{{1}, 64}});
    CHECK(copies(*each, "on 2").empty());
    CHECK(copies(*each, "on 3") == std::vector<Extent>{{{3}, 4096}, {{1}, 8192}});
  }
}

TEST_CASE("a folder's policy holds below it where nothing nearer is set, and is in the snapshot") {
  State state;
  REQUIRE(state.apply(AddDirectory{{20}, kRootFile, "a", 0755}));
  REQUIRE(state.apply(AddDirectory{{21}, {20}, "b", 0755}));
  REQUIRE(state.apply(create({10}, "f", chunk_at(1), {21})));
  REQUIRE(state.apply(SetPolicy{kRootFile, {{{PolicyKey::kKeep, 2}, {PolicyKey::kCopies, 3}}}, 5}));
  REQUIRE(state.apply(SetPolicy{{20}, {{{PolicyKey::kKeep, 4}}}, 6}));
  const auto keep = [](const State& of) {
    return of.files().policy(*of.file({10})).get(PolicyKey::kKeep);
  };
  CHECK(keep(state) == 4);
  CHECK(state.files().policy(*state.file({10})).get(PolicyKey::kCopies) == 3);
  CHECK(state.file({20})->ctime_ns == 6);
  State copy;
  for (const Command& command : snapshot_of(state)) REQUIRE(copy.apply(command));
  CHECK(snapshot_of(copy) == snapshot_of(state));
  CHECK(keep(copy) == 4);
  REQUIRE(state.apply(SetPolicy{{20}, {{{PolicyKey::kKeep, kPolicyInherit}}}, 7}));
  CHECK(keep(state) == 2);
  CHECK(state.apply(SetPolicy{{10}, {}, 8}).error().code == Code::kNotDirectory);
  CHECK(state.apply(SetPolicy{{99}, {}, 8}).error().code == Code::kNotFound);
  // The policy moves with the folder.
  REQUIRE(state.apply(SetPolicy{{21}, {{{PolicyKey::kKeep, 9}}}, 9}));
  REQUIRE(state.apply(RenameName{{20}, "b", kRootFile, "c"}));
  CHECK(keep(state) == 9);
}

TEST_CASE("a pending file has the policy of the folder that it is to be in") {
  State state;
  REQUIRE(state.apply(AddDirectory{{20}, kRootFile, "a", 0755}));
  REQUIRE(state.apply(SetPolicy{{20}, {{{PolicyKey::kCopies, 2}}}, 5}));
  REQUIRE(state.pending().make({10}, {{20}, "f", 0600, 0, 0, 0, {}}, {7}, 5));
  CHECK(state.files().policy(*state.file({10})).get(PolicyKey::kCopies) == 2);
}

TEST_CASE("a file with two names is one file, and goes with the last of them") {
  State state;
  REQUIRE(state.apply(AddDirectory{{20}, kRootFile, "d"}));
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(AddLink{{10}, {20}, "b", 5}));
  CHECK(find(state, "b", {20}) == FileId{10});
  CHECK(state.files().attributes(*state.file({10})).link_count == 2);
  CHECK(state.commits().logical_bytes() == 1000);
  CHECK_FALSE(state.apply(AddLink{{20}, kRootFile, "e"}));
  CHECK_FALSE(state.apply(AddLink{{10}, kRootFile, "a"}));
  CHECK(state.apply(RemoveName{kRootFile, "a"}));
  CHECK(state.take_freed().empty());
  CHECK(state.path(*state.file({10})) == "d/b");
  CHECK(state.files().attributes(*state.file({10})).link_count == 1);
  CHECK(state.commits().logical_bytes() == 1000);
  CHECK(state.apply(RemoveName{{20}, "b"}));
  CHECK(state.take_freed().size() == 1);
  CHECK(state.file({10}) == nullptr);
}

TEST_CASE("a rename over one of two names leaves the other, and two names of a file stay") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "b"}));
  REQUIRE(state.apply(create({11}, "c", chunk_at(2))));
  REQUIRE(state.apply(RenameName{kRootFile, "a", kRootFile, "b"}));
  CHECK(find(state, "a") == FileId{10});
  CHECK(find(state, "b") == FileId{10});
  REQUIRE(state.apply(RenameName{kRootFile, "c", kRootFile, "b"}));
  CHECK(find(state, "a") == FileId{10});
  CHECK(find(state, "b") == FileId{11});
  CHECK(state.take_freed().empty());
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "x"}));
  REQUIRE(state.apply(RenameName{kRootFile, "x", kRootFile, "b"}));
  CHECK(find(state, "b") == FileId{10});
  CHECK(state.file({11}) == nullptr);
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "c"}));
  CHECK(state.apply(create({12}, "c", chunk_at(3))));
  CHECK(find(state, "c") == FileId{12});
  CHECK(state.files().attributes(*state.file({10})).link_count == 2);
}

TEST_CASE("names of a drained file are names of one file in the drain directory") {
  State state;
  const auto queued = [&](std::size_t index) {
    auto at = state.mirror_queue().begin();
    std::advance(at, index);
    return at->second;
  };
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "b", 5, true}));
  CHECK(state.mirror_queue().empty());
  REQUIRE(state.apply(DrainStarted{{10}}));
  REQUIRE(state.apply(Drained{{10}, 1}));
  REQUIRE(state.mirror_queue().size() == 1);
  CHECK(queued(0).kind == msg::MirrorKind::kLink);
  CHECK(queued(0).path == "a");
  CHECK(queued(0).other_path == "b");
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "c", 6, true}));
  REQUIRE(state.mirror_queue().size() == 2);
  CHECK(queued(1).other_path == "c");
  const std::vector<Command> before = snapshot_of(state);
  State restored;
  for (const Command& command : before) REQUIRE(restored.apply(command));
  CHECK(snapshot_of(restored) == before);
  REQUIRE(state.apply(RemoveName{kRootFile, "a", false, 7, true}));
  REQUIRE(state.mirror_queue().size() == 3);
  CHECK(queued(2).kind == msg::MirrorKind::kUnlink);
  CHECK(queued(2).path == "a");
}

TEST_CASE("a name goes in the drain directory only after the next name is there") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(DrainStarted{{10}}));
  REQUIRE(state.apply(AddLink{{10}, kRootFile, "b", 5, true}));
  REQUIRE(state.apply(RemoveName{kRootFile, "a", false, 7, true}));
  REQUIRE(state.mirror_queue().size() == 2);
  CHECK(state.mirror_queue().begin()->second.kind == msg::MirrorKind::kLink);
  CHECK(state.mirror_queue().rbegin()->second.kind == msg::MirrorKind::kUnlink);
}

TEST_CASE("FIFOs and sockets are made in the drain directory, devices are not") {
  State state;
  REQUIRE(state.apply(AddNode{{30}, kRootFile, "f", FileType::kFifo, 0640, 1, 2, 0, 5, true}));
  REQUIRE(state.apply(
      AddNode{{31}, kRootFile, "n", FileType::kCharacterDevice, 0640, 1, 2, 0x103, 5, true}));
  CHECK(state.files().attributes(*state.file({31})).device == 0x103);
  REQUIRE(state.mirror_queue().size() == 1);
  CHECK(state.mirror_queue().begin()->second.mode == (S_IFIFO | 0640));
  CHECK_FALSE(state.apply(AddNode{{32}, kRootFile, "r", FileType::kRegular}));
}

TEST_CASE("an id that is there already, or none, makes no file") {
  State state;
  REQUIRE(state.apply(create({10}, "a", chunk_at(1))));
  REQUIRE(state.apply(AddDirectory{{11}, kRootFile, "d"}));
  const std::vector<Command> before = snapshot_of(state);
  RestoreFile restore;
  restore.attributes.type = FileType::kRegular;
  restore.parent = kRootFile;
  restore.name = "c";
  for (const std::uint64_t id : {0U, 10U, 11U}) {
    CHECK_FALSE(state.apply(AddDirectory{{id}, {11}, "c"}));
    CHECK_FALSE(state.apply(AddSymlink{{id}, {11}, "c", "a"}));
    CHECK_FALSE(state.apply(SetLatest{{11}, {id}, "a", {}}));
    restore.attributes.id = {id};
    CHECK_FALSE(state.apply(restore));
  }
  CHECK_FALSE(state.apply(create({0}, "c", chunk_at(2))));
  restore.attributes.id = kRootFile;
  CHECK_FALSE(state.apply(restore));
  CHECK(snapshot_of(state) == before);
}

TEST_CASE("only a file with versions is drained, and parity has no name") {
  State state;
  REQUIRE(state.apply(AddDirectory{{11}, kRootFile, "d"}));
  CHECK_FALSE(state.apply(Drained{{11}, 0}));
  Chunk parity = chunk_at(2);
  CHECK_FALSE(state.apply(MakeStripes{{{{chunk_at(1)}, {parity}}}}));
  CHECK(state.chunks().chunk_count() == 0);
}

TEST_CASE("a version says how it was named until something else is written") {
  State state;
  CommitVersion first = create({10}, "a", chunk_at(1));
  first.naming = NamingState::kDidNotPay;
  REQUIRE(state.apply(first));
  const auto naming = [](const State& of) { return of.files().attributes(*of.file({10})).naming; };
  CHECK(naming(state) == NamingState::kDidNotPay);
  CommitVersion nothing;  // the commit only truncates
  nothing.file = {10};
  nothing.cut_before = nothing.set_size = true;
  nothing.cut_bytes = nothing.size_bytes = 500;
  nothing.naming = NamingState::kOff;
  REQUIRE(state.apply(nothing));
  CHECK(naming(state) == NamingState::kDidNotPay);
  State restored;
  for (const Command& command : snapshot_of(state)) REQUIRE(restored.apply(command));
  CHECK(naming(restored) == NamingState::kDidNotPay);
  CommitVersion more = write({10}, 0, chunk_at(2));
  more.naming = NamingState::kOn;
  REQUIRE(restored.apply(more));
  CHECK(naming(restored) == NamingState::kOn);
}

TEST_CASE("a set keeps the number of images it was whole with until one of them is another") {
  State state;
  std::uint64_t id = 10;
  const auto image = [&](const char* name) {
    CommitVersion command = create({id}, name, chunk_at(id));
    command.opened = state.sequence();
    ++id;
    return command;
  };
  const ImageName set{"app", 0, 1};
  const auto whole = [&](const State& of) { return of.set_generations().whole(kRootFile, set); };
  for (const char* name : {"app.N0.T1", "app.N1.T1"}) REQUIRE(state.apply(image(name)));
  CHECK_FALSE(state.set_generations().has_complete_set(kRootFile));
  REQUIRE(state.apply(BeginGeneration{kRootFile, "app", 0, 0, {{1, 0, 0, 2}}}));
  CHECK(whole(state) == 2);
  State restored;
  for (const Command& command : snapshot_of(state)) REQUIRE(restored.apply(command));
  CHECK(whole(restored) == 2);
  CHECK(snapshot_of(restored) == snapshot_of(state));
  SECTION("because it is removed") { REQUIRE(state.apply(RemoveName{kRootFile, "app.N1.T1"})); }
  SECTION("because it is written again") { REQUIRE(state.apply(image("app.N1.T1"))); }
  SECTION("because it was not there") { REQUIRE(state.apply(image("app.N2.T1"))); }
  SECTION("because it has another name") {
    REQUIRE(state.apply(RenameName{kRootFile, "app.N1.T1", kRootFile, "app.N1.T2"}));
  }
  SECTION("because of what somebody writes who was not known") {
    REQUIRE(state.apply(BeginGeneration{kRootFile, "app", 1, 0, {{1, 1, 0}}}));
  }
  SECTION("or there is none") {
    for (const char* name : {"app.N0.T1", "app.N1.T1"}) {
      REQUIRE(state.apply(RemoveName{kRootFile, name}));
    }
  }
  CHECK(whole(state) == 0);
  CHECK_FALSE(state.set_generations().has_complete_set(kRootFile));
}

TEST_CASE("a directory that another one has replaced is in no snapshot") {
  State state;
  REQUIRE(state.apply(AddDirectory{{11}, kRootFile, "d"}));
  REQUIRE(state.apply(AddDirectory{{12}, kRootFile, "e"}));
  REQUIRE(state.apply(BeginGeneration{{11}, "a", 0, 5, {}}));
  REQUIRE(state.apply(RenameName{kRootFile, "e", kRootFile, "d"}));
  State again;
  for (const Command& command : snapshot_of(state)) CHECK(again.apply(command));
}

TEST_CASE("a folder of a file is visited once for all names that follow each other") {
  const FileId one{20}, other{30};
  File file;
  const auto folders = [&file] {
    std::vector<FileId> visited;
    for_each_folder(file, [&](FileId folder) { visited.push_back(folder); });
    return visited;
  };
  CHECK(folders().empty());
  file.parent = one;
  for (int i = 0; i < 1000; ++i) file.links.push_back({one, std::to_string(i)});
  CHECK(folders() == std::vector{one});
  file.links.push_back({other, "a"});
  file.links.push_back({other, "b"});
  file.links.push_back({one, "c"});
  CHECK(folders() == std::vector{one, other, one});
}
