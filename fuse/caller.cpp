#include "fuse/caller.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace stdchk::mount {
namespace {

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

CallerInspector::CallerInspector(Read read, Duration answer_max)
    : read_(read ? std::move(read) : read_state), answer_max_(answer_max) {}

CallerInspector::~CallerInspector() {
  {
    const MutexLock lock(mutex_);
    stops_ = true;
    changed_.notify_one();
  }
  if (watcher_.joinable()) watcher_.join();
}

void CallerInspector::inspect(std::int32_t pid, std::uint32_t uid, const Done& done) {
  if (pid <= 0) return done(CallerState::kUnseen);
  Question question{std::chrono::steady_clock::now(), &done, {}};
  {
    const MutexLock lock(mutex_);
    open_.push_back(&question);
    is_used_ = true;
    if (!watcher_.joinable()) watcher_ = std::thread([this] { watch(); });
    if (std::exchange(watcher_sleeps_, false)) changed_.notify_one();
  }
  const CallerState state = read_(pid, uid);
  {
    const MutexLock lock(mutex_);
    std::erase(open_, &question);
  }
  if (!question.taken_over.joinable()) return done(state);
  question.taken_over.join();
}

/// Looks at the open questions a few times in `answer_max_`. Sleeps when nobody has asked meanwhile,
/// so that a busy mount wakes this thread seldom, and an idle mount never.
void CallerInspector::watch() {
  MutexLock lock(mutex_);
  while (!stops_) {
    if (open_.empty() && !std::exchange(is_used_, false)) {
      watcher_sleeps_ = true;
      changed_.wait(lock, [this]() STDCHK_REQUIRES(mutex_) { return !watcher_sleeps_ || stops_; });
    }
    changed_.wait_for(lock, answer_max_ / 4, [this]() STDCHK_REQUIRES(mutex_) { return stops_; });
    const auto now = std::chrono::steady_clock::now();
    for (Question* question : open_) {
      if (question->taken_over.joinable() || now - question->since < answer_max_) continue;
      question->taken_over =
          std::thread([done = question->done] { (*done)(CallerState::kRunning); });
    }
  }
}

}  // namespace stdchk::mount
