#include "container/box/fault_copies.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <iterator>

#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::container;

int make_userfault() {
  const int made = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  uffdio_api api{};
  api.api = UFFD_API;
  return made >= 0 && ::ioctl(made, UFFDIO_API, &api) == 0 ? made : -1;
}

/// A Server is a process with userfaultfds. It makes one at 'm', and closes the newest one at 'c'.
class Server {
 public:
  Server() {
    REQUIRE(::pipe(words_.data()) == 0);
    REQUIRE(::pipe(answers_.data()) == 0);
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) run();
  }
  ~Server() {
    end();
    ::waitpid(process_, nullptr, 0);
    for (const int fd : {words_[0], words_[1], answers_[0], answers_[1]}) ::close(fd);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  pid_t process() const { return process_; }
  bool tell(char word) {
    REQUIRE(::write(words_[1], &word, 1) == 1);
    char answer = 0;
    REQUIRE(::read(answers_[0], &answer, 1) == 1);
    return answer == 'y';
  }
  /// Kills the process, and waits until it has ended. It is not reaped.
  void end() const {
    ::kill(process_, SIGKILL);
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOWAIT);
  }

 private:
  [[noreturn]] void run() const {
    int newest = -1;
    for (char word = 0; ::read(words_[0], &word, 1) == 1;) {
      const bool makes = word == 'm';
      if (makes) newest = make_userfault();
      if (!makes) ::close(newest);
      const char answer = makes && newest < 0 ? 'n' : 'y';
      if (::write(answers_[1], &answer, 1) != 1) break;
    }
    ::_exit(0);
  }

  std::array<int, 2> words_{};
  std::array<int, 2> answers_{};
  pid_t process_ = -1;
};

TEST_CASE(
    "userfaultfds of a process are copied, until it closes them, and kept when it is killed") {
  Server server;
  FaultCopies copies(server.process());
  copies.update();
  CHECK(copies.size() == 0);
  if (!server.tell('m')) {
    WARN("SKIPPED: this process gets no userfaultfd here");
    return;
  }
  copies.update();
  if (copies.size() == 0) {
    WARN("SKIPPED: this user may not copy descriptors of processes");
    return;
  }
  REQUIRE(server.tell('m'));
  copies.update();
  CHECK(copies.size() == 2);
  REQUIRE(server.tell('c'));
  copies.update();
  CHECK(copies.size() == 1);
  REQUIRE(server.tell('m'));  // gets the number of the closed userfaultfd
  copies.update();
  copies.update();
  CHECK(copies.size() == 2);
  server.end();
  copies.update();
  CHECK(copies.size() == 2);
}

TEST_CASE("the descriptors that copy from a process do not grow with the number of looks") {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  Server server;
  const auto before = open_files();
  {
    FaultCopies copies(server.process());
    copies.update();
    CHECK(open_files() == before + 1);
    copies.update();
    CHECK(open_files() == before + 1);
  }
  CHECK(open_files() == before);
}

}  // namespace
