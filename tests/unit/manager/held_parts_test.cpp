#include <string>
#include <vector>

#include "manager/sets/directory_sets.h"
#include "tests/unit/manager/training.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

/// A writer that stores a part of a file by fsync.
struct Syncer {
  Syncer(Training& training, FileId parent, const std::string& name) : client(training.client) {
    msg::OpenSession open;
    open.client = client.id;
    open.parent = parent;
    open.name = name;
    open.mode = 0644;
    open.want_bytes = 8192;
    const auto opened = client.call(open);
    REQUIRE(opened);
    session = opened->session;
    grant = opened->grants.at(0);
    REQUIRE(client.call(TestClient::commit_of(session, grant, 0, 1000, 901)));
  }
  void end(bool aborted) {
    msg::CloseSession close;
    close.session = session;
    close.aborted = aborted;
    REQUIRE(client.call(close));
  }

  TestClient& client;
  SessionId session;
  Grant grant;
};

std::size_t named(const TestBenefactor& benefactor, const std::string& path) {
  std::size_t count = 0;
  for (const auto& finish : benefactor.all<msg::DrainFinish>()) count += finish.path == path;
  return count;
}

}  // namespace

TEST_CASE(
    "a directory by number is not whole with a file that was stored by fsync and never closed") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* images=2");
  const FileId directory = trainer.make_directory("step-0");
  trainer.write("step-0/0");
  Syncer writer(training, directory, "1");
  const bool dies = GENERATE(true, false);
  training.live(2);
  CHECK_FALSE(trainer.set("step-0").complete);
  writer.end(dies);
  training.live(3);
  CHECK(trainer.set("step-0").complete == !dies);
  CHECK(trainer.latest() == (dies ? "" : "step-0"));
  // The next pool has only the number of files to judge the directory by.
  CHECK(named(benefactor, "step-0/1") == (dies ? 0 : 1));
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
  if (dies) {
    trainer.write("step-0/1");
    training.live(3);
    CHECK(trainer.set("step-0").complete);
    CHECK(named(benefactor, "step-0/1") == 1);
  }
}

TEST_CASE("a restarted manager knows which files were never closed") {
  World world;
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
    TestClient client(world, "client");
    Trainer trainer(client);
    trainer.set_policy("set=directory set-names=step-* images=1");
    msg::OpenSession open;
    open.client = client.id;
    open.parent = trainer.make_directory("step-0");
    open.name = "0";
    open.want_bytes = 8192;
    const auto opened = client.call(open);
    REQUIRE(opened);
    REQUIRE(
        client.call(TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000, 901)));
  }
  world.restart();
  TestBenefactor benefactor(world, "b1", 1, kTrainingArena);
  TestClient client(world, "again");
  Trainer trainer(client);
  world.pass(5s);
  CHECK_FALSE(trainer.set("step-0").complete);
}

TEST_CASE("a marker waits for a file of its directory that was never closed") {
  Training training("/pfs");
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("set=directory set-names=step-* marker=.metadata pointer=latest");
  const FileId directory = trainer.make_directory("step-0");
  Syncer writer(training, directory, "0");
  writer.end(true);
  trainer.write("step-0/.metadata");
  trainer.write("latest");
  training.live(3);
  CHECK_FALSE(trainer.set("step-0").complete);
  CHECK(named(benefactor, "step-0/0") == 1);
  CHECK(named(benefactor, "step-0/.metadata") == 0);
  CHECK(named(benefactor, "latest") == 0);
  REQUIRE(client.call(msg::SetXattr{client.id, directory, std::string(kXattrCommitted), "1"}));
  training.live(3);
  CHECK(trainer.set("step-0").complete);
  CHECK(named(benefactor, "step-0/.metadata") == 1);
  CHECK(named(benefactor, "latest") == 1);
}

TEST_CASE("a set of names by pattern is not complete with an image that was never closed") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("series=restart.{T}.{N} images=2");
  trainer.write("restart.7.0");
  Syncer writer(training, kRootFile, "restart.7.1");
  training.live(2);
  CHECK_FALSE(trainer.set("restart.7.*").complete);
  const bool dies = GENERATE(true, false);
  writer.end(dies);
  training.live(2);
  CHECK(trainer.set("restart.7.*").complete == !dies);
}

TEST_CASE("a change of a whole image that is stored by fsync leaves its set complete") {
  Training training;
  auto& [world, benefactor, client, trainer] = training;
  trainer.set_policy("series=restart.{T}.{N} images=1");
  const FileId image = trainer.write("restart.7.0", 2000);
  training.live(1);
  REQUIRE(trainer.set("restart.7.*").complete);
  msg::OpenSession open;
  open.client = client.id;
  open.file = image;
  open.want_bytes = 4096;
  const auto opened = client.call(open);
  REQUIRE(opened);
  REQUIRE(client.call(TestClient::commit_of(opened->session, opened->grants.at(0), 0, 500, 902)));
  CHECK(trainer.set("restart.7.*").complete);
}
