#include "fuse/caller.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace stdchk::mount {

CallerState state_of_caller(const ProcessState& process) {
  if (process.state == 'X') return CallerState::kUnseen;
  constexpr std::uint64_t kSignalMask = 0x7f;  // the signal in a waitpid(2) status
  const bool killed = process.is_ending() && (process.exit_code & kSignalMask) != 0;
  return killed ? CallerState::kKilled : CallerState::kRunning;
}

namespace {

CallerState read_state(std::int32_t pid, std::uint32_t uid) {
  const ProcessState process = read_process_state(pid);
  // The kernel shows the exit code only to the process's user and to root. Others read 0.
  if (uid != geteuid() && geteuid() != 0) return CallerState::kUnseen;
  return state_of_caller(process);
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
