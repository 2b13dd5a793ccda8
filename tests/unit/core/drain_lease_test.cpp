#include "core/files/drain_lease.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/files/drain_manifest.h"
#include "tests/support/catch.h"

namespace stdchk {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using State = DrainLease::State;

/// A drain directory, and a clock.
struct Scene {
  Scene() : drain(::mkdtemp(name.data())) {}
  ~Scene() { fs::remove_all(drain); }

  fs::path file() const { return drain / kLeaseName; }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(file()).rdbuf();
    return out.str();
  }
  /// Names a manager on another host, so that nobody can see whether it lives.
  static LeaseHolder elsewhere(const std::string& manager, const std::string& pool) {
    return {pool, manager, "far", "another-boot pid:[1] 1 1"};
  }
  static LeaseHolder here(const std::string& manager, const std::string& pool) {
    return LeaseHolder::of_this_process(pool, manager);
  }
  DrainLease lease(const LeaseHolder& holder, bool inherits = false) const {
    return {drain.string(), holder, inherits};
  }

  std::string name = "/tmp/stdchk-drain-lease-XXXXXX";
  const fs::path drain;
  Time now{1s};
};

TEST_CASE("One of two pools has the lease, until it gives the lease back") {
  Scene scene;
  DrainLease one = scene.lease(Scene::elsewhere("aa", "1"));
  DrainLease two = scene.lease(Scene::elsewhere("bb", "2"));
  CHECK(one.step(scene.now) == State::kOurs);
  CHECK(two.step(scene.now) == State::kOthers);
  CHECK(two.holder() == Scene::elsewhere("aa", "1"));
  CHECK(is_pool_file(scene.file().filename().string()));
  two.release();  // takes nothing away
  CHECK(one.step(scene.now) == State::kOurs);
  one.release();
  CHECK_FALSE(fs::exists(scene.file()));
  CHECK(two.step(scene.now) == State::kOurs);
  CHECK(one.step(scene.now) == State::kOthers);
}

TEST_CASE("A lease that is renewed stays, and one that is not is taken") {
  Scene scene;
  DrainLease one = scene.lease(Scene::elsewhere("aa", "1"));
  DrainLease two = scene.lease(Scene::elsewhere("bb", "2"));
  for (int i = 0; i < 20; ++i) {
    CHECK(one.step(scene.now) == State::kOurs);
    CHECK(two.step(scene.now) == State::kOthers);
    scene.now += DrainLease::kRenewEvery;
  }
  const Time last = scene.now - DrainLease::kRenewEvery;
  CHECK(two.step(last + DrainLease::kStaleAfter - 1ms) == State::kOthers);
  CHECK(two.step(last + DrainLease::kStaleAfter) == State::kOurs);
  // The first pool was stopped meanwhile. It notices the new lease, and does not write into it.
  const std::string text = scene.text();
  CHECK(one.step(last + DrainLease::kStaleAfter) == State::kOthers);
  one.release();
  CHECK(scene.text() == text);
}

TEST_CASE("The lease of a process that ended on this host is taken at once") {
  Scene scene;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool ours = scene.lease(Scene::here("aa", "1")).step(scene.now) == State::kOurs;
    ::_exit(ours ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(scene.lease(Scene::here("bb", "2")).step(scene.now) == State::kOurs);
}

TEST_CASE("The lease of a process that lives on this host is not") {
  Scene scene;
  REQUIRE(scene.lease(Scene::here("aa", "1")).step(scene.now) == State::kOurs);
  CHECK(scene.lease(Scene::here("bb", "2")).step(scene.now) == State::kOthers);
}

TEST_CASE("A restarted manager and a standby of the same pool take the lease at once") {
  Scene scene;
  DrainLease before = scene.lease(Scene::elsewhere("aa", "1"));
  REQUIRE(before.step(scene.now) == State::kOurs);
  DrainLease restarted = scene.lease(Scene::here("aa", "1"));
  CHECK(restarted.step(scene.now) == State::kOurs);
  // An ordinary manager that knows the same secret is another pool; a standby is not.
  CHECK(scene.lease(Scene::here("bb", "1")).step(scene.now) == State::kOthers);
  DrainLease stranger = scene.lease(Scene::here("cc", "2"), true);
  CHECK(stranger.step(scene.now) == State::kOthers);
  DrainLease standby = scene.lease(Scene::here("dd", "1"), true);
  CHECK(standby.step(scene.now) == State::kOurs);
  // A standby inherits only once.
  CHECK(restarted.step(scene.now) == State::kOthers);
}

TEST_CASE("Of many pools that see the same dead lease one gets it") {
  Scene scene;
  {
    DrainLease lost = scene.lease(Scene::elsewhere("00", "0"));
    REQUIRE(lost.step(scene.now) == State::kOurs);
  }
  constexpr int kPools = 8;
  const Time later = scene.now + DrainLease::kStaleAfter;
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  for (int i = 0; i < kPools; ++i) {
    if (::fork() != 0) continue;
    ::close(pipe_ends[1]);
    DrainLease lease = scene.lease(Scene::elsewhere(std::to_string(10 + i), std::to_string(i)));
    const bool waited = lease.step(scene.now) == State::kOthers;
    char byte = 0;
    (void)!::read(pipe_ends[0], &byte, 1);  // all begin when the other end is closed
    const State state = lease.step(later);
    ::_exit(!waited ? 2 : state == State::kOurs ? 1 : 0);
  }
  ::usleep(50'000);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  int winners = 0;
  for (int i = 0; i < kPools; ++i) {
    int status = 0;
    REQUIRE(::wait(&status) > 0);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) != 2);
    winners += WEXITSTATUS(status);
  }
  CHECK(winners == 1);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(scene.drain)) files += entry.exists() ? 1 : 0;
  CHECK(files == 1);
}

TEST_CASE("What is no lease is respected for a while, and then replaced") {
  Scene scene;
  std::ofstream(scene.file()) << "something else";
  DrainLease lease = scene.lease(Scene::elsewhere("aa", "1"));
  CHECK(lease.step(scene.now) == State::kOthers);
  CHECK(lease.holder().manager.empty());
  CHECK(lease.step(scene.now + DrainLease::kStaleAfter) == State::kOurs);
}

TEST_CASE("An empty file in place of the lease is respected for a while, too") {
  Scene scene;
  std::ofstream(scene.file()).flush();
  DrainLease lease = scene.lease(Scene::elsewhere("aa", "1"));
  CHECK(lease.step(scene.now) == State::kOthers);
  CHECK(lease.step(scene.now + DrainLease::kStaleAfter) == State::kOurs);
}

TEST_CASE("A link or another user's file in place of the lease is neither read nor written") {
  Scene scene;
  const fs::path victim = scene.drain / "victim";
  std::ofstream(victim) << "precious";
  DrainLease lease = scene.lease(Scene::elsewhere("aa", "1"));
  fs::create_symlink(victim, scene.file());
  CHECK(lease.step(scene.now) == State::kUnknown);
  CHECK_FALSE(lease.reason().empty());
  fs::remove(scene.file());
  // After the lease was made somebody puts a file with a second name in its place.
  REQUIRE(lease.step(scene.now) == State::kOurs);
  const std::string text = scene.text();
  fs::remove(scene.file());
  std::ofstream(victim) << text;
  fs::create_hard_link(victim, scene.file());
  CHECK(lease.step(scene.now) == State::kUnknown);
  CHECK(scene.text() == text);
  if (::geteuid() != 0) return;
  fs::remove(scene.file());
  std::ofstream(scene.file()) << "of another user";
  REQUIRE(::chown(scene.file().c_str(), 1234, 1234) == 0);
  CHECK(lease.step(scene.now) == State::kUnknown);
}

TEST_CASE("A lease that cannot be written leaves nothing that looks like another pool's") {
  Scene scene;
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  DrainLease lease = scene.lease(Scene::elsewhere("aa", "1"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  const State first = lease.step(scene.now);
  const State second = lease.step(scene.now);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(first == State::kUnknown);
  CHECK(second == State::kUnknown);
  CHECK_FALSE(fs::exists(scene.file()));
  CHECK(lease.step(scene.now) == State::kOurs);
}

TEST_CASE("A drain directory that is gone for a while gets its lease again") {
  Scene scene;
  DrainLease lease = scene.lease(Scene::elsewhere("aa", "1"));
  REQUIRE(lease.step(scene.now) == State::kOurs);
  const fs::path away = scene.drain.string() + ".away";
  fs::rename(scene.drain, away);
  CHECK(lease.step(scene.now) == State::kUnknown);
  fs::create_directory(scene.drain);
  CHECK(lease.step(scene.now) == State::kOurs);
  fs::remove_all(away);
}

}  // namespace
}  // namespace stdchk
