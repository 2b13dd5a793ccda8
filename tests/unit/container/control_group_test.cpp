#include "container/box/control_group.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

using namespace std::chrono_literals;

/// A control group with one process, made by this test. Only root can make groups, and not in every container.
class InGroup {
 public:
  /// The process ends by itself after `life`.
  explicit InGroup(std::chrono::milliseconds life) {
    for (const char* const parent : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
      path_ = fmt::format("{}/stdchk-{}-1", parent, tag());
      if (::mkdir(path_.c_str(), 0755) == 0) break;
      path_.clear();
    }
    if (path_.empty()) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::usleep(static_cast<useconds_t>(life / 1us));
      ::_exit(0);
    }
    std::ofstream(path_ + "/cgroup.procs") << pid_ << std::flush;
  }
  ~InGroup() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  InGroup(const InGroup&) = delete;
  InGroup& operator=(const InGroup&) = delete;

  static std::string tag() { return fmt::format("test{}", ::getpid()); }
  explicit operator bool() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  pid_t pid() const { return pid_; }

 private:
  std::string path_;
  pid_t pid_ = 0;
};

TEST_CASE("a group goes when the last of its processes has ended, and is waited for until then") {
  const InGroup group(200ms);
  if (!group) return;  // no control group can be made here
  remove_control_groups(InGroup::tag(), 10s);
  CHECK_FALSE(std::filesystem::exists(group.path()));
  CHECK(
      remove_group(group.path(), std::chrono::steady_clock::now()));  // an absent group is no error
}

TEST_CASE("who keeps a group is named when the wait is over") {
  const InGroup group(30s);
  if (!group) return;  // no control group can be made here
  const auto removed = remove_group(group.path(), std::chrono::steady_clock::now() + 50ms);
  REQUIRE_FALSE(removed);
  CHECK(removed.error().text.find(group.path()) != std::string::npos);
  CHECK(removed.error().text.find(fmt::format("{} (", group.pid())) != std::string::npos);
  CHECK(removed.error().text.find(", state ") != std::string::npos);
}

}  // namespace
}  // namespace stdchk::container
