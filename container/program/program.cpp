#include "container/program/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/base/descriptor.h"
#include "core/base/exec_words.h"

namespace stdchk::container {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kErrorBytesMax = 600;
constexpr int kNotStarted = 127;
constexpr std::int64_t kTurnMs = 50;  ///< time between two checks of ProgramCall::cancelled
constexpr std::int64_t kWatchTurnMs = 2;

struct Pipes {
  Descriptor in_read, in_write, out_read, out_write, error_read, error_write;
};

bool make_pipe(Descriptor& read_end, Descriptor& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
  return true;
}

/// Runs in the child after fork(). Calls only functions that are async-signal-safe, because another
/// thread of the parent may have held a lock, such as that of malloc().
[[noreturn]] void become(char* const* words, const Pipes& pipes, int net_namespace) {
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool ready = (net_namespace < 0 || ::setns(net_namespace, CLONE_NEWNET) == 0) &&
                     ::dup2(pipes.in_read.get(), STDIN_FILENO) >= 0 &&
                     ::dup2(pipes.out_write.get(), STDOUT_FILENO) >= 0 &&
                     ::dup2(pipes.error_write.get(), STDERR_FILENO) >= 0;
  if (ready) ::execvp(words[0], words);
  // strerror() may allocate memory and translate.
  const char* const text = ::strerrordesc_np(errno);
  if (text != nullptr) (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(kNotStarted);
}

/// Appends all readable bytes to `to`. Returns false when the program has closed its end.
bool take(const Descriptor& from, std::string& to) {
  std::array<char, 16384> buffer{};
  const ssize_t n = ::read(from.get(), buffer.data(), buffer.size());
  if (n > 0) to.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

struct Said {
  std::string out, error;
  bool is_late = false;       ///< the deadline came before the end of the output
  bool is_cancelled = false;  ///< the caller has cancelled the program
};

Said talk(Pipes& pipes, const ProgramCall& call, pid_t child, Clock::time_point end) {
  const std::string& input = call.input;
  Said said;
  std::size_t written = 0;
  if (input.empty()) pipes.in_write = Descriptor();
  ::fcntl(pipes.in_write.get(), F_SETFL, O_NONBLOCK);
  while (pipes.out_read || pipes.error_read) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    said.is_cancelled = call.cancelled != nullptr && *call.cancelled;
    said.is_late = left.count() <= 0;
    if (said.is_late || said.is_cancelled) break;
    std::array<pollfd, 3> wanted{{{pipes.out_read.get(), POLLIN, 0},
                                  {pipes.error_read.get(), POLLIN, 0},
                                  {pipes.in_write.get(), POLLOUT, 0}}};
    if (call.watch) call.watch(child);
    const auto turn = std::min<std::int64_t>(left.count() + 1, call.watch ? kWatchTurnMs : kTurnMs);
    if (::poll(wanted.data(), wanted.size(), static_cast<int>(turn)) < 0) continue;
    if (wanted[0].revents != 0 && !take(pipes.out_read, said.out)) pipes.out_read = Descriptor();
    if (wanted[1].revents != 0 && !take(pipes.error_read, said.error)) {
      pipes.error_read = Descriptor();
    }
    if (wanted[2].revents == 0) continue;
    const ssize_t n = ::write(pipes.in_write.get(), input.data() + written, input.size() - written);
    if (n > 0) written += static_cast<std::size_t>(n);
    if ((n < 0 && errno != EAGAIN && errno != EINTR) || written == input.size()) {
      pipes.in_write = Descriptor();
    }
  }
  return said;
}

/// Waits for the child until `end`, or not at all with `at_once`, and then kills its process group.
/// Returns the child's wait status, or -1 for a child that was killed.
int wait_for(pid_t child, Clock::time_point end, bool at_once) {
  int status = 0;
  while (!at_once) {
    const pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR)) return status;
    at_once = Clock::now() >= end;
    ::usleep(1000);
  }
  ::kill(-child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return -1;
}

Descriptor open_if_named(const std::string& path, int flags) {
  return path.empty() ? Descriptor() : Descriptor(::open(path.c_str(), flags | O_CLOEXEC));
}

}  // namespace

std::string errno_text(const std::string& what) {
  return fmt::format("{}: {}", what, std::strerror(errno));
}

Outcome<std::string> run_program(const ProgramCall& call) {
  const std::string& name = call.words.at(0);
  const Descriptor net = open_if_named(call.net_namespace, O_RDONLY);
  if (!net && !call.net_namespace.empty()) return problem(errno_text(call.net_namespace));
  const std::vector<char*> words = exec_words(call.words);
  Pipes pipes;
  if (!make_pipe(pipes.in_read, pipes.in_write) || !make_pipe(pipes.out_read, pipes.out_write) ||
      !make_pipe(pipes.error_read, pipes.error_write)) {
    return problem(errno_text(name + ": no pipe"));
  }
  const auto end = Clock::now() + call.deadline;
  const pid_t child = ::fork();
  if (child < 0) return problem(errno_text(name + ": fork"));
  if (child == 0) become(words.data(), pipes, net.get());
  ::setpgid(child, child);
  pipes.in_read = Descriptor();
  pipes.out_write = Descriptor();
  pipes.error_write = Descriptor();
  Said said = talk(pipes, call, child, end);
  const int status = wait_for(child, end, said.is_late || said.is_cancelled);
  if (status == 0) return std::move(said.out);
  while (!said.error.empty() && said.error.back() == '\n') said.error.pop_back();
  if (said.error.size() > kErrorBytesMax) {
    said.error = "..." + said.error.substr(said.error.size() - kErrorBytesMax);
  }
  if (status == -1 && said.is_cancelled) return problem(name + " was cancelled and killed");
  if (status == -1) {
    return problem(
        fmt::format("{} did not end within {} ms and was killed", name,
                    std::chrono::duration_cast<std::chrono::milliseconds>(call.deadline).count()));
  }
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with status {}", WEXITSTATUS(status));
  return problem(fmt::format("{} {}: {}", name, how, said.error));
}

}  // namespace stdchk::container
