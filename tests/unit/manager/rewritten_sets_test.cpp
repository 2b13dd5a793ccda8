// Programs that write a directory of a set again in place, with its marker.
#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "manager/state/outdated_markers.h"
#include "tests/unit/manager/drain_model.h"
#include "tests/unit/manager/training.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr const char* kRules = "set=directory set-names=chk* marker=.metadata pointer=latest";
constexpr std::uint32_t kShards = 3;

std::uint32_t shard_bytes(std::uint32_t generation) { return 1000 + 10 * generation; }
std::uint32_t marker_bytes(std::uint32_t generation) { return 50 + generation; }

/// Requires that a marker of the drain directory has the shards of its generation beside it.
void check(const DrainModel& drained) {
  const auto marker = drained.bytes("chk/.metadata");
  if (!marker) return;
  const auto generation = static_cast<std::uint32_t>(*marker - marker_bytes(0));
  INFO("the marker is of generation " << generation);
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    REQUIRE(drained.bytes("chk/" + std::to_string(shard)) == shard_bytes(generation));
  }
}

/// A pool whose drain directory has generation 0 of the checkpoint `chk`.
struct Rewriting : Training {
  Rewriting() : Training("/pfs") {
    trainer.set_policy(kRules);
    folder = trainer.make_directory("chk");
    for (std::uint32_t shard = 0; shard < kShards; ++shard) {
      shards.push_back(write_shard(shard, 0));
    }
    trainer.write("chk/.metadata", marker_bytes(0));
    trainer.write("latest", kPointerBytes);
    live(3);
    REQUIRE(model().bytes("chk/.metadata") == marker_bytes(0));
  }
  FileId write_shard(std::uint32_t shard, std::uint32_t generation) {
    return trainer.write("chk/" + std::to_string(shard), shard_bytes(generation));
  }
  void remove(const std::string& name) {
    REQUIRE(client.call(msg::Remove{client.id, folder, name}));
  }
  void rename(const std::string& from, const std::string& to) {
    REQUIRE(client.call(msg::Rename{client.id, folder, from, folder, to, false, false}));
  }
  bool is_outdated() const {
    return world.service->state().file(folder)->xattrs.contains(std::string(kXattrOutdated));
  }
  /// Returns the drain directory as it is now. Checks it after each request.
  DrainModel model() const {
    DrainModel drained;
    for (const msg::Request& request : benefactor.served) {
      drained.take(request);
      check(drained);
    }
    return drained;
  }

  FileId folder;
  std::vector<FileId> shards;
};

/// The ways in which programs write a directory again.
enum class Way : std::uint8_t {
  kMarkerGoesFirst,
  kOverwrites,
  kRemovesAll,
  kRemovesEachShard,
  kRenamesOver,
  kRenamesMarkerOnly,
};

/// Writes the next generation. Calls `pause` between the steps.
void write_again(Rewriting& pool, Way way, std::uint32_t generation,
                 const std::function<void()>& pause) {
  if (way == Way::kMarkerGoesFirst) pool.remove(".metadata");
  for (std::uint32_t shard = 0; way == Way::kRemovesAll && shard < kShards; ++shard) {
    pool.remove(std::to_string(shard));
    pause();
  }
  if (way == Way::kRemovesAll) pool.remove(".metadata");
  for (std::uint32_t shard = 0; shard < kShards; ++shard) {
    const std::string name = std::to_string(shard);
    pause();
    if (way == Way::kRemovesEachShard) pool.remove(name);
    if (way == Way::kRenamesOver) {
      pool.trainer.write("chk/" + name + ".tmp", shard_bytes(generation));
      pause();
      pool.rename(name + ".tmp", name);
    } else {
      pool.write_shard(shard, generation);
    }
  }
  pause();
  if (way == Way::kRenamesOver || way == Way::kRenamesMarkerOnly) {
    pool.trainer.write("chk/.metadata.tmp", marker_bytes(generation));
    pause();
    pool.rename(".metadata.tmp", ".metadata");
  } else {
    pool.trainer.write("chk/.metadata", marker_bytes(generation));
  }
}

}  // namespace

TEST_CASE(
    "however a directory is written again, its marker is never beside files of another "
    "generation") {
  constexpr std::uint32_t kGenerations = 4;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Rewriting pool;
    const auto pause = [&] {
      // The storage of some files answers late.
      pool.benefactor.hangs.clear();
      const auto& children = pool.world.service->state().file(pool.folder)->as_directory.children;
      for (const auto& [name, id] : children) {
        if (prng.below(5) == 0) pool.benefactor.hangs.insert(id);
      }
      pool.world.pass(std::chrono::milliseconds(100 * prng.below(8)));
    };
    for (std::uint32_t generation = 1; generation < kGenerations; ++generation) {
      write_again(pool, static_cast<Way>(prng.below(6)), generation, pause);
      if (prng.below(2) == 0) answer_all(pool.benefactor);
      pool.live(1);
    }
    answer_all(pool.benefactor);
    pool.live(10);
    const DrainModel drained = pool.model();
    CHECK(drained.bytes("chk/.metadata") == marker_bytes(kGenerations - 1));
    // Three shards, a marker and the pointer: nothing is left under a number.
    CHECK(drained.entries().size() == kShards + 2);
    CHECK(pool.trainer.set("chk").complete);
    CHECK(pool.client.call(msg::StatPool{})->drain_pending_files == 0);
  }
}

TEST_CASE("a marker that is older than a changed file goes, and comes only when it is written") {
  Rewriting pool;
  pool.write_shard(1, 1);
  pool.live(3);
  CHECK_FALSE(pool.trainer.set("chk").complete);
  CHECK_FALSE(pool.model().bytes("chk/.metadata"));
  CHECK(pool.model().bytes("chk/1") == shard_bytes(1));
  // Nobody waits for a marker that its program has to write.
  CHECK(pool.client.call(msg::StatPool{})->drain_pending_files == 0);
  pool.write_shard(0, 1);
  pool.write_shard(2, 1);
  pool.trainer.write("chk/.metadata", marker_bytes(1));
  pool.live(3);
  CHECK(pool.trainer.set("chk").complete);
  CHECK(pool.model().bytes("chk/.metadata") == marker_bytes(1));
}

TEST_CASE(
    "the drain directory keeps the earlier generation whole until the first file is drained") {
  Rewriting pool;
  pool.benefactor.hangs.insert(pool.shards[1]);
  pool.write_shard(1, 1);
  pool.live(2);
  CHECK(pool.is_outdated());
  CHECK(pool.model().bytes("chk/.metadata") == marker_bytes(0));
  answer_all(pool.benefactor);
  pool.live(2);
  CHECK_FALSE(pool.model().bytes("chk/.metadata"));
}

TEST_CASE("a user may say that a directory is whole after a change, and its marker is not copied") {
  Rewriting pool;
  pool.remove("1");
  pool.live(3);
  CHECK_FALSE(pool.trainer.set("chk").complete);
  DrainModel drained;
  for (const msg::Request& request : pool.benefactor.served) drained.take(request);
  CHECK_FALSE(drained.bytes("chk/.metadata"));
  const std::size_t copied = pool.benefactor.all<msg::DrainPieces>().size();
  REQUIRE(pool.client.call(
      msg::SetXattr{pool.client.id, pool.folder, std::string(kXattrCommitted), "1"}));
  pool.live(3);
  CHECK(pool.trainer.set("chk").complete);
  CHECK(pool.benefactor.all<msg::DrainFinish>().back().path == "chk/.metadata");
  CHECK(pool.benefactor.all<msg::DrainPieces>().size() == copied);
}

TEST_CASE("a file that is added after the marker, or was open before it, outdates no marker") {
  Rewriting pool;
  pool.trainer.write("chk/stats-dump", 20);
  pool.trainer.write("chk/stats-dump", 30);
  pool.live(3);
  CHECK_FALSE(pool.is_outdated());
  // A writer has a file open while the marker is written, and closes the file later.
  const auto there = pool.client.call(msg::Lookup{pool.client.id, pool.folder, "0"});
  REQUIRE(there);
  msg::OpenSession open;
  open.client = pool.client.id;
  open.file = there->attributes.id;
  open.truncate = true;
  open.want_bytes = 4096;
  const auto opened = pool.client.call(open);
  REQUIRE(opened);
  for (std::uint32_t shard = 1; shard < kShards; ++shard) pool.write_shard(shard, 1);
  pool.trainer.write("chk/.metadata", marker_bytes(1));
  auto commit = TestClient::commit_of(opened->session, opened->grants.at(0), 0, shard_bytes(1), 77);
  commit.set_size = true;
  commit.size_bytes = shard_bytes(1);
  commit.end = true;
  REQUIRE(pool.client.call(commit));
  CHECK_FALSE(pool.is_outdated());
  pool.live(3);
  CHECK(pool.trainer.set("chk").complete);
  CHECK(pool.model().bytes("chk/.metadata") == marker_bytes(1));
}

TEST_CASE("the pool's own link goes back to the last whole directory before the marker goes") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata");
  for (const std::string step : {"step-1", "step-2"}) {
    trainer.make_directory(step);
    trainer.write(step + "/0", 1000);
    trainer.write(step + "/.metadata", 50);
    training.live(3);
  }
  REQUIRE(trainer.latest() == "step-2");
  benefactor.served.clear();
  trainer.write("step-2/0", 1010);
  training.live(3);
  CHECK(trainer.latest() == "step-1");
  std::vector<std::string> order;
  for (const msg::Request& request : benefactor.served) {
    const auto* change = std::get_if<msg::MirrorChange>(&request);
    const auto* finish = std::get_if<msg::DrainFinish>(&request);
    if (finish != nullptr) order.push_back(finish->path);
    if (change == nullptr || change->kind == msg::MirrorKind::kDropTemporary) continue;
    const bool is_link = change->kind == msg::MirrorKind::kSymlink;
    order.push_back(is_link ? change->path + " to " + change->other_path : change->path);
  }
  const std::vector<std::string> expected{"latest to step-1", "step-2/.metadata", "step-2/0"};
  CHECK(order == expected);
}

TEST_CASE("a restarted manager knows that a marker is outdated") {
  World world("/pfs");
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
    TestClient client(world, "client");
    Trainer trainer(client);
    trainer.set_policy(kRules);
    trainer.make_directory("chk");
    trainer.write("chk/0", shard_bytes(0));
    trainer.write("chk/.metadata", marker_bytes(0));
    world.pass(2s);
    trainer.write("chk/0", shard_bytes(1));
    world.pass(2s);
  }
  world.restart();
  TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
  TestClient client(world, "again");
  Trainer trainer(client);
  for (int second = 0; second < 5; ++second) {
    world.pass(1s);
    benefactor.beat();
  }
  CHECK_FALSE(trainer.set("chk").complete);
  for (const auto& finish : benefactor.all<msg::DrainFinish>()) {
    CHECK(finish.path != "chk/.metadata");
  }
}
