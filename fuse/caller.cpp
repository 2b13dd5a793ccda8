#include "fuse/caller.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "core/base/mutex.h"

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

/// A Reader reads /proc in a thread of its own. A new thread for each answer would cost more than
/// the rest of a close().
///
/// Threads: one that asks, and its own.
class Reader {
 public:
  Reader() : shared_(std::make_shared<Shared>()) {
    std::thread([shared = shared_] { serve(*shared); }).detach();
  }
  ~Reader() {
    const MutexLock lock(shared_->mutex);
    shared_->ends = true;
    shared_->changed.notify_all();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Returns nothing when there is no answer in kAnswerMax. The Reader must not be asked again then.
  std::optional<CallerState> ask(std::int32_t pid, std::uint32_t uid) {
    MutexLock lock(shared_->mutex);
    shared_->question = {pid, uid};
    shared_->changed.notify_all();
    shared_->changed.wait_for(lock, kAnswerMax, [this]() STDCHK_REQUIRES(shared_->mutex) {
      return shared_->answer.has_value();
    });
    return std::exchange(shared_->answer, std::nullopt);
  }

 private:
  struct Process {
    std::int32_t pid = 0;
    std::uint32_t uid = 0;
  };
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::optional<Process> question STDCHK_GUARDED_BY(mutex);
    std::optional<CallerState> answer STDCHK_GUARDED_BY(mutex);
    bool ends STDCHK_GUARDED_BY(mutex) = false;
  };

  static void serve(Shared& shared) {
    MutexLock lock(shared.mutex);
    while (!shared.ends) {
      if (!shared.question) {
        shared.changed.wait(lock);
        continue;
      }
      const Process process = *std::exchange(shared.question, std::nullopt);
      lock.unlock();
      const CallerState state = read_state(process.pid, process.uid);
      lock.lock();
      shared.answer = state;
      shared.changed.notify_all();
    }
  }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace

CallerState inspect_caller(std::int32_t pid, std::uint32_t uid) {
  if (pid <= 0) return CallerState::kUnseen;
  thread_local std::unique_ptr<Reader> reader;
  if (!reader) reader = std::make_unique<Reader>();
  const auto state = reader->ask(pid, uid);
  if (!state) reader.reset();  // its thread ends when the kernel has answered
  return state.value_or(CallerState::kRunning);
}

}  // namespace stdchk::mount
