#include "container/box/processes.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/process_id.h"

namespace stdchk::container {
namespace {

constexpr auto kRound = std::chrono::milliseconds(2);

std::optional<ino_t> namespace_of(pid_t pid) {
  struct stat found {};
  if (::stat(fmt::format("/proc/{}/ns/pid", pid).c_str(), &found) != 0) return std::nullopt;
  return found.st_ino;
}

bool is_stopped(pid_t pid) {
  const char state = read_process_state(pid).state;
  return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

}  // namespace

std::vector<pid_t> processes_of(pid_t init) {
  std::vector<pid_t> found;
  const auto wanted = namespace_of(init);
  if (!wanted) return found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    if (namespace_of(pid) == wanted) found.push_back(pid);
  }
  return found;
}

Outcome<void> stop_processes(pid_t init, Duration deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto all = processes_of(init);
    if (all.empty()) return problem("the container has ended");
    std::size_t running = 0;
    for (const pid_t pid : all) {
      if (is_stopped(pid)) continue;
      ++running;
      ::kill(pid, SIGSTOP);
    }
    if (running == 0) return {};
    if (std::chrono::steady_clock::now() >= end) {
      return problem(fmt::format("{} of {} processes do not stop; the kernel waits for something",
                                 running, all.size()));
    }
    ::usleep(std::chrono::microseconds(kRound).count());
  }
}

void continue_processes(pid_t init) {
  // Process 1 last: it must not see its children as stopped.
  for (const pid_t pid : processes_of(init)) {
    if (pid != init) ::kill(pid, SIGCONT);
  }
  ::kill(init, SIGCONT);
}

void kill_processes(pid_t init) {
  ::kill(init, SIGKILL);
  while (::waitpid(init, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace stdchk::container
