// Process 1 of a container: runs commands, reaps processes, and passes requests for checkpoints on.
// Every state that outlives a turn is in memory or in /.stdchk, so a checkpoint holds all of it.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "container/init/files.h"
#include "container/init/modes.h"

namespace stdchk::container {
namespace {

constexpr int kTurnMs = 50;
constexpr int kSignalled = 128;
constexpr int kNotStarted = 127;

std::vector<char*> words_of(std::string& text) {
  std::vector<char*> words;
  for (std::size_t at = 0; at < text.size(); at += std::strlen(text.data() + at) + 1) {
    words.push_back(text.data() + at);
  }
  words.push_back(nullptr);
  return words;
}

/// An Init is process 1.
class Init {
 public:
  int run() {
    listen();
    for (;;) {
      wait();
      reap();
      start_commands();
      answer();
    }
  }

 private:
  void listen() {
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, kSocket, sizeof address.sun_path - 1);
    ::unlink(kSocket);
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::chmod(kSocket, 0666) != 0 || ::listen(socket_, SOMAXCONN) != 0) {
      std::perror(kSocket);
    }
  }

  /// Sleeps until a program connects or a child ends, or for one turn.
  void wait() {
    pollfd wanted{socket_, POLLIN, 0};
    if (::poll(&wanted, 1, kTurnMs) <= 0) return;
    const int fd = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    if (waiting_.empty()) write_text(kRequest, std::to_string(++request_));
    waiting_.push_back(fd);
  }

  void reap() {
    int status = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto command = commands_.find(child);
      if (command == commands_.end()) continue;
      const int code = WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
      write_text(std::string(kEnded) + "/" + std::to_string(command->second), std::to_string(code));
      commands_.erase(command);
    }
  }

  void start_commands() {
    for (;; ++next_) {
      const std::string path = std::string(kCommands) + "/" + std::to_string(next_);
      if (!exists(path)) return;
      const pid_t child = ::fork();
      if (child == 0) become(read_text(path));
      if (child > 0) commands_[child] = next_;
    }
  }

  [[noreturn]] void become(std::string command) const {
    ::setsid();
    const std::string number = std::to_string(next_);
    const int null = ::open("/dev/null", O_RDONLY);
    const int out = ::open(("/.stdchk/out." + number).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    const int err = ::open(("/.stdchk/err." + number).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(null, 0);
    ::dup2(out, 1);
    ::dup2(err, 2);
    ::close_range(3, ~0U, 0);
    unsigned user = 0, group = 0;
    std::sscanf(read_text(kUser).c_str(), "%u %u", &user, &group);
    if (user != 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(group) != 0 || ::setuid(user) != 0)) {
      std::perror("user");
      ::_exit(kNotStarted);
    }
    if (::chdir(read_text(kFolder).c_str()) != 0) (void)!::chdir("/");
    std::string environment = read_text(kEnvironment);
    const std::vector<char*> variables = words_of(environment);
    const std::vector<char*> words = words_of(command);
    ::clearenv();
    for (char* variable : variables) {
      if (variable != nullptr) ::putenv(variable);
    }
    if (words[0] != nullptr) ::execvp(words[0], words.data());
    std::perror(words[0]);
    ::_exit(kNotStarted);
  }

  /// The node has written the outcome of the newest request.
  void answer() {
    if (waiting_.empty()) return;
    const std::string text = read_text(kAnswer);
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || std::atoll(text.c_str() + space) < request_) return;
    for (const int fd : waiting_) {
      (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
      ::close(fd);
    }
    waiting_.clear();
  }

  int socket_ = -1;
  long long request_ = 0;
  int next_ = 0;
  std::map<pid_t, int> commands_;
  std::vector<int> waiting_;  ///< programs that wait for the answer to `request_`
};

std::string numbered(const char* folder, const std::string& name) {
  return std::string(folder) + "/" + name;
}

}  // namespace

int run_init() {
  ::signal(SIGPIPE, SIG_IGN);
  return Init().run();
}

/// agent [-OPTION...] HOST COMMAND...: as ssh(1), the words of the command are joined by spaces.
int run_agent(int argc, char** argv) {
  int at = 1;
  while (at < argc && argv[at][0] == '-') ++at;
  if (at + 1 >= argc) return kUsage;
  std::string text = argv[at++];
  for (; at < argc; ++at) text += std::string(" ") + argv[at];
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::string name = std::to_string(::getpid()) + "-" + std::to_string(now.tv_nsec);
  if (!write_text(numbered(kAsks, name), text)) {
    std::perror(kAsks);
    return kNotStarted;
  }
  const std::string result = numbered(kResults, name);
  while (!exists(result)) ::usleep(kTurnMs * 1000);
  return std::atoi(read_text(result).c_str());
}

/// Prints "goes-on N", "restarted N" or "not-taken N".
int run_checkpoint() {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, kSocket, sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::perror(kSocket);
    return kUsage;
  }
  char text[64] = {};
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  if (n <= 0) return kUsage;
  std::puts(text);
  return std::strncmp(text, "not-taken", 9) == 0 ? 1 : 0;
}

}  // namespace stdchk::container
