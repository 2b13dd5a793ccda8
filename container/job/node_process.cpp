#include "container/job/node_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/exec_words.h"
#include "core/files/log_end.h"

namespace stdchk::container {
namespace {

constexpr auto kEndMax = std::chrono::seconds(5);
constexpr std::size_t kLogShown = 500;

std::string end_of(const std::string& path) {
  std::string text = end_of_log(path, kLogShown);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Outcome<NodeProcess> NodeProcess::start(const std::vector<std::string>& command,
                                        const std::string& key, const std::string& log) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return problem(errno_text("pipe"));
  const Descriptor in_read(in[0]), in_write(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return problem(errno_text("pipe"));
  Descriptor out_read(out[0]);
  const Descriptor out_write(out[1]);
  const Descriptor errors(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!errors) return problem(errno_text(log));
  const std::vector<char*> words = exec_words(command);
  const pid_t child = ::fork();
  if (child < 0) return problem(errno_text("fork"));
  if (child == 0) {
    // Signals of the terminal are the coordinator's: it saves or ends the job first.
    ::setsid();
    ::dup2(in_read.get(), STDIN_FILENO);
    ::dup2(out_write.get(), STDOUT_FILENO);
    ::dup2(errors.get(), STDERR_FILENO);
    ::execvp(words[0], words.data());
    std::perror(words[0]);
    ::_exit(127);
  }
  // A key fits into the buffer of a pipe, so write() does not block.
  if (::write(in_write.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return problem(errno_text("the key of a node"));
  }
  return NodeProcess(child, std::move(out_read), log);
}

NodeProcess::NodeProcess(NodeProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      out_(std::move(other.out_)),
      log_(std::move(other.log_)) {}

NodeProcess::~NodeProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  const auto end = std::chrono::steady_clock::now() + kEndMax;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= end) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    ::usleep(5000);
  }
}

Outcome<std::string> NodeProcess::wait_ready(Duration deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  const std::string label = "ready ";
  std::string line;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wanted{out_.get(), POLLIN, 0};
    std::array<char, 512> buffer{};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count())) == 0) {
      return problem("the node's daemon is not ready in time; see " + log_);
    }
    const ssize_t n = ::read(out_.get(), buffer.data(), buffer.size());
    if (n == 0) return problem("the node's daemon has ended: " + end_of(log_));
    if (n > 0) line.append(buffer.data(), static_cast<std::size_t>(n));
    const std::size_t newline = line.find('\n');
    if (newline == std::string::npos) continue;
    if (!line.starts_with(label)) return problem("the node's daemon said: " + line);
    return line.substr(label.size(), newline - label.size());
  }
}

}  // namespace stdchk::container
