#include "fuse/caller.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace stdchk::mount {
namespace {

/// execve(2) closes descriptors under a lock that readers of /proc/PID need on some kernels. Such a
/// read waits until the FLUSH is answered.
constexpr auto kAnswerMax = std::chrono::milliseconds(200);
constexpr int kFieldFlags = 9;
constexpr int kFieldExitCode = 52;
constexpr std::uint64_t kExiting = 0x4;      // PF_EXITING of linux/sched.h
constexpr std::uint64_t kSignalMask = 0x7f;  // the signal in a waitpid(2) status

bool number(std::string_view text, std::uint64_t& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

CallerState parse_process_stat(std::string_view line) {
  // Field 2, the command, may contain spaces and parentheses. It ends at the last ')'.
  std::size_t close = line.rfind(')');
  if (close == std::string_view::npos) return CallerState::kUnseen;
  line.remove_prefix(close + 1);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  std::uint64_t flags = 0;
  std::uint64_t exit_code = 0;
  int field = 2;
  while (!line.empty() && field < kFieldExitCode) {
    line.remove_prefix(1);  // the space before the field
    field++;
    std::size_t end = line.find(' ');
    std::string_view text = line.substr(0, end);
    if (field == kFieldFlags && !number(text, flags)) return CallerState::kUnseen;
    if (field == kFieldExitCode && !number(text, exit_code)) return CallerState::kUnseen;
    line.remove_prefix(end == std::string_view::npos ? line.size() : end);
  }
  if (field != kFieldExitCode) return CallerState::kUnseen;
  bool killed = (flags & kExiting) != 0 && (exit_code & kSignalMask) != 0;
  return killed ? CallerState::kKilled : CallerState::kRunning;
}

namespace {

CallerState read_state(std::int32_t pid, std::uint32_t uid) {
  std::string path = fmt::format("/proc/{}/stat", pid);
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CallerState::kUnseen;
  char line[2048];
  ssize_t length = read(fd, line, sizeof(line));
  ::close(fd);
  if (length <= 0) return CallerState::kUnseen;
  // The kernel shows the exit code only to the process's user and to root. Others read 0.
  if (uid != geteuid() && geteuid() != 0) return CallerState::kUnseen;
  return parse_process_stat({line, static_cast<std::size_t>(length)});
}

}  // namespace

CallerState inspect_caller(std::int32_t pid, std::uint32_t uid) {
  if (pid <= 0) return CallerState::kUnseen;
  auto state = std::make_shared<std::promise<CallerState>>();
  auto answer = state->get_future();
  std::thread([state, pid, uid] { state->set_value(read_state(pid, uid)); }).detach();
  if (answer.wait_for(kAnswerMax) != std::future_status::ready) return CallerState::kRunning;
  return answer.get();
}

}  // namespace stdchk::mount
