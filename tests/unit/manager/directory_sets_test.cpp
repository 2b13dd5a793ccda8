#include "manager/sets/directory_sets.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"
#include "tests/unit/manager/training.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

/// The files that got their names in the drain directory, with their lengths, in that order.
std::vector<std::pair<std::string, std::uint64_t>> named(const TestBenefactor& benefactor) {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (const auto& finish : benefactor.all<msg::DrainFinish>()) {
    out.emplace_back(finish.path, finish.size_bytes);
  }
  return out;
}

}  // namespace

TEST_CASE("a directory is a complete set when its marker is there and nothing in it is written") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata");
  const FileId directory = trainer.make_directory("step-1");
  trainer.make_directory("logs");
  trainer.write("step-1/0.distcp");
  world.pass(1s);
  CHECK_FALSE(trainer.set("step-1").complete);
  CHECK(trainer.set("step-1").problem == "no file in it matches marker=.metadata");
  CHECK(client.call(msg::ListSets{kRootFile})->sets.size() == 1);
  msg::OpenSession open;
  open.client = client.id;
  open.parent = directory;
  open.name = "1.distcp";
  const auto opened = client.call(open);
  REQUIRE(opened);
  trainer.write("step-1/.metadata");
  world.pass(1s);
  CHECK_FALSE(trainer.set("step-1").complete);
  CHECK(trainer.latest().empty());
  REQUIRE(client.call(msg::CloseSession{opened->session}));
  world.pass(2s);
  CHECK(trainer.set("step-1").complete);
  CHECK(trainer.set("step-1").problem.empty());
  CHECK(trainer.latest() == "step-1");
}

TEST_CASE("a checkpoint of one file is whole: the file is its own marker") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=model.ckpt pointer=latest keep=1");
  for (const char* step : {"step-1", "step-2"}) {
    trainer.make_directory(step);
    trainer.write(std::string(step) + "/model.ckpt");
    trainer.write("latest", kPointerBytes);
    training.live(2);
  }
  CHECK(trainer.set("step-2").complete);
  CHECK_FALSE(client.lookup("step-1"));
  // The pointer does not wait for other files.
  CHECK(named(benefactor).back().first == "latest");
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
}

TEST_CASE("the marker of a program that writes other files first is not alone in a whole set") {
  const auto [preset, marker] =
      GENERATE(std::pair("criu", "inventory.img"),
               std::pair("dmtcp", "dmtcp_restart_script_1-2.sh"), std::pair("dcp", ".metadata"),
               std::pair("megatron", ".metadata"), std::pair("adios", "profiling.json"));
  INFO(preset);
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("preset=" + std::string(preset));
  const std::string directory = std::string(preset) == "megatron" ? "iter_0000001"
                                : std::string(preset) == "adios"  ? "step-1.bp"
                                                                  : "step-1";
  trainer.make_directory(directory);
  trainer.write(directory + "/" + marker);
  world.pass(2s);
  CHECK_FALSE(trainer.set(directory).complete);
  trainer.write(directory + "/other");
  world.pass(2s);
  CHECK(trainer.set(directory).complete);
}

TEST_CASE("a number of files, a pointer or a user says that a directory is whole") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory images=2");
  const FileId directory = trainer.make_directory("one");
  trainer.write("one/a");
  CHECK_FALSE(trainer.set("one").complete);
  trainer.write("one/b");
  CHECK(trainer.set("one").complete);
  trainer.set_policy("images=unknown pointer=newest");
  CHECK_FALSE(trainer.set("one").complete);
  trainer.write("newest");
  CHECK(trainer.set("one").complete);
  trainer.write("one/c");
  CHECK_FALSE(trainer.set("one").complete);
  REQUIRE(client.call(msg::SetXattr{client.id, directory, std::string(kXattrCommitted), "1"}));
  CHECK(trainer.set("one").complete);
}

TEST_CASE("keep removes old directories, and their markers first") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata keep=1");
  std::vector<FileId> directories;
  for (const std::string name : {"step-1", "step-2", "step-3"}) {
    directories.push_back(trainer.make_directory(name));
    trainer.write(name + "/0");
    if (name != "step-3") trainer.write(name + "/.metadata");
  }
  const File& second = *world.service->state().file(directories[1]);
  const DirectorySets sets(world.service->state(), world.service->sessions());
  const auto names = sets.removal_of(second);
  REQUIRE(names.size() == 3);
  CHECK(names.front().name == ".metadata");
  CHECK(names.back().name == "step-2");
  world.pass(2s);
  CHECK(trainer.latest() == "step-2");
  CHECK_FALSE(client.lookup("step-1"));
  CHECK(client.lookup("step-2"));
  CHECK(client.lookup("step-3"));
  REQUIRE(client.call(msg::SetXattr{client.id, kRootFile, "user.stdchk.pin.step-2", "1"}));
  trainer.write("step-3/.metadata");
  world.pass(2s);
  CHECK(trainer.latest() == "step-3");
  CHECK(client.lookup("step-2"));
  REQUIRE(client.call(
      msg::SetXattr{client.id, kRootFile, "user.stdchk.pin.step-2", "1", msg::XattrMode{}, true}));
  world.pass(2s);
  CHECK_FALSE(client.lookup("step-2"));
}

TEST_CASE("the directory that a pointer names stays, although newer directories are complete") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata pointer=latest|best keep=1");
  const auto save = [&trainer = trainer](const std::string& name) {
    trainer.make_directory(name);
    trainer.write(name + "/0");
    trainer.write(name + "/.metadata");
  };
  save("step-1");
  trainer.write("best");
  save("step-2");
  trainer.write("latest");
  save("step-3");
  save("step-4");
  training.live(3);
  CHECK(client.lookup("step-1"));
  CHECK(client.lookup("step-2"));
  CHECK_FALSE(client.lookup("step-3"));
  CHECK(client.lookup("step-4"));
  trainer.write("latest");
  training.live(3);
  CHECK(client.lookup("step-1"));
  CHECK_FALSE(client.lookup("step-2"));
  // Some programs write the pointer before the marker.
  trainer.make_directory("step-5");
  trainer.write("step-5/0");
  trainer.write("latest");
  save("step-6");
  training.live(3);
  CHECK(client.lookup("step-4"));
  CHECK(client.lookup("step-5"));
  CHECK(client.lookup("step-6"));
}

TEST_CASE("a directory without files stays until it is old: its program is about to write") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata keep=1 purge-after=60s");
  trainer.make_directory("step-1");
  trainer.write("step-1/0");
  trainer.write("step-1/.metadata");
  trainer.make_directory("step-2");
  training.live(30);
  CHECK(trainer.latest() == "step-1");
  REQUIRE(client.lookup("step-2"));
  trainer.write("step-2/0");
  trainer.write("step-2/.metadata");
  trainer.make_directory("step-3");
  training.live(30);
  CHECK(trainer.latest() == "step-2");
  CHECK_FALSE(client.lookup("step-1"));
  CHECK(client.lookup("step-3"));
  training.live(60);
  CHECK_FALSE(client.lookup("step-3"));
  CHECK(client.lookup("step-2"));
}

TEST_CASE("whenever the pool is lost, what the pointer names is whole in the drain directory") {
  constexpr std::uint32_t kSets = 3;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed);
    Training training("/pfs");
    auto& [world, benefactor, client, trainer] = training;
    trainer.set_policy("preset=dcp");
    std::vector<std::uint32_t> shards;
    for (std::uint32_t step = 0; step < kSets; ++step) {
      const std::string directory = "step-" + std::to_string(step);
      trainer.make_directory(directory);
      shards.push_back(1 + static_cast<std::uint32_t>(prng.below(5)));
      for (std::uint32_t shard = 0; shard < shards.back(); ++shard) {
        const FileId file = trainer.write(directory + "/" + std::to_string(shard));
        // The storage of some files answers late.
        if (prng.below(4) == 0) benefactor.hangs.insert(file);
        if (prng.below(3) == 0) world.pass(100ms);
      }
      // Some programs write the pointer before the marker.
      const bool early = prng.below(4) == 0;
      if (early) trainer.write("latest", kPointerBytes + step);
      trainer.write(directory + "/.metadata");
      if (!early) trainer.write("latest", kPointerBytes + step);
      world.pass(std::chrono::milliseconds(100 * prng.below(5)));
    }
    benefactor.hangs.clear();
    for (rpc::Responder& late : benefactor.hung) late(msg::Reply{msg::DrainPieces::Reply{}});
    benefactor.hung.clear();
    training.live(5);
    // The pool may be lost after each of these steps: each beginning of the list is a drain
    // directory.
    std::map<std::string, std::uint64_t> there;
    for (const auto& [path, length] : named(benefactor)) {
      there[path] = length;
      if (!there.contains("latest")) continue;
      const std::uint64_t step = there.at("latest") - kPointerBytes;
      const std::string directory = "step-" + std::to_string(step) + "/";
      REQUIRE(there.contains(directory + ".metadata"));
      for (std::uint32_t shard = 0; shard < shards[step]; ++shard) {
        REQUIRE(there.contains(directory + std::to_string(shard)));
      }
    }
    CHECK(there.at("latest") == kPointerBytes + kSets - 1);
    CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
  }
}

TEST_CASE(
    "names by pattern make sets, with files that are no rank's, and zeros as they are written") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.write("restart.0100.0");
  trainer.set_policy("series=restart.{T}.{N|base} images=2");
  trainer.write("restart.0100.1");
  world.pass(1s);
  CHECK_FALSE(trainer.set("restart.0100.*").complete);
  trainer.write("restart.0100.base");
  world.pass(1s);
  CHECK(trainer.set("restart.0100.*").complete);
  CHECK(trainer.latest() == "restart.0100.*");
  // A program that writes to the link does not make a file with a star.
  CHECK(client.create("restart.0100.*").error().code == Code::kInvalidArgument);
}

TEST_CASE("two names of one rank are an error, and never two images") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("images=2");
  trainer.write("a.N0.T1");
  trainer.write("a.N00.T1");
  trainer.write("b.N0.T1");
  trainer.write("b.N1.T01");
  trainer.write("c.N0.T001");
  trainer.write("c.N1.T001");
  world.pass(1s);
  CHECK_FALSE(trainer.set("a.*.T1").complete);
  CHECK(trainer.set("a.*.T1").problem == "two names are of rank 0, as N0 and N00 are");
  CHECK(trainer.set("c.*.T001").problem.empty());
  const auto sets = client.call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  const auto mixed = std::ranges::find(sets->sets, "b", &msg::ListSets::Entry::application);
  REQUIRE(mixed != sets->sets.end());
  CHECK_FALSE(mixed->complete);
  CHECK(mixed->problem == "its timestep is written in two ways, as T1 and T01 are");
  CHECK(trainer.latest() == "c.*.T001");
}

TEST_CASE("a restarted manager knows sets by pattern and by directory") {
  World world;
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    Trainer trainer(client);
    trainer.set_policy("series=r.{T} images=1");
    trainer.write("r.7");
    world.pass(1s);
    CHECK(trainer.latest() == "r.7");
  }
  world.restart();
  TestBenefactor benefactor(world, "b2", 2, kArena);
  TestClient client(world, "again");
  Trainer trainer(client);
  world.pass(3s);
  CHECK(trainer.set("r.7").complete);
  trainer.set_policy("set=directory set-names=d*");
  trainer.make_directory("d1");
  trainer.write("d1/r.8");
  CHECK(trainer.set("d1").images == 1);
  CHECK(client.call(msg::ListSets{kRootFile})->sets.size() == 1);
}

TEST_CASE(
    "drain-every counts a directory from its first file on, and no empty directory before it") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata drain-every=2");
  trainer.make_directory("step-1");
  training.live(1);
  for (const std::string step : {"1", "2", "3", "4"}) {
    trainer.write("step-" + step + "/0");
    trainer.write("step-" + step + "/.metadata");
    // The program makes its next directory before the manager looks.
    trainer.make_directory("step-" + std::to_string(std::stoi(step) + 1));
    training.live(2);
  }
  const std::vector<std::pair<std::string, std::uint64_t>> expected{{"step-1/0", 1000},
                                                                    {"step-1/.metadata", 1000},
                                                                    {"step-3/0", 1000},
                                                                    {"step-3/.metadata", 1000}};
  CHECK(named(benefactor) == expected);
}

TEST_CASE("a directory that drain-every left out leaves no empty folder when keep removes it") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata drain-every=2 keep=1");
  for (const std::string step : {"step-1", "step-2", "step-3"}) {
    trainer.make_directory(step);
    trainer.write(step + "/0");
    trainer.write(step + "/.metadata");
    training.live(2);
  }
  CHECK_FALSE(client.lookup("step-1"));
  CHECK_FALSE(client.lookup("step-2"));
  std::vector<std::string> removed;
  for (const auto& change : benefactor.all<msg::MirrorChange>()) {
    if (change.kind == msg::MirrorKind::kRemoveDirectory) removed.push_back(change.path);
    CHECK(change.kind != msg::MirrorKind::kUnlink);
  }
  // Drained files belong to the user.
  CHECK(removed == std::vector<std::string>{"step-2"});
}
