#include "client/read/file_threads.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
constexpr auto kIdle = 10s;
constexpr auto kEndPatience = 2s;

}  // namespace

FileThreads::FileThreads() : state_(std::make_shared<State>()) {}

FileThreads::~FileThreads() {
  MutexLock lock(state_->mutex);
  state_->closed = true;
  state_->lines.clear();
  state_->waiting = 0;
  state_->changed.notify_all();
  State& state = *state_;
  (void)state.changed.wait_for(lock, kEndPatience,
                               [&]() STDCHK_REQUIRES(state.mutex) { return state.reading == 0; });
  state.changed.wait(lock, [&]() STDCHK_REQUIRES(state.mutex) { return state.delivering == 0; });
}

std::size_t FileThreads::thread_count() const {
  const MutexLock lock(state_->mutex);
  return state_->threads;
}

void FileThreads::run(FileWork work) {
  const MutexLock lock(state_->mutex);
  if (state_->closed) return;
  Line& line = state_->lines[work.owner];
  line.waiting.push_back(std::move(work));
  state_->changed.notify_one();
  // A thread that was woken for earlier work counts as idle until it runs.
  if (state_->idle > state_->waiting++) return;
  const bool may_have_more =
      state_->threads < kThreadsForMore && line.running + line.waiting.size() <= kThreadsOfOne;
  const bool has_none = state_->threads < kThreadsMax && line.running == 0;
  if (!may_have_more && !has_none) return;
  ++state_->threads;
  std::thread thread = start_without_signals([state = state_] { serve(state); });
  ::pthread_setname_np(thread.native_handle(), "stdchk-files");
  thread.detach();
}

/// Takes work of the next user, in turn, whose number of threads is below the limit.
bool FileThreads::take(State& state, FileWork& work) {
  const auto try_line = [&](auto at) STDCHK_REQUIRES(state.mutex) {
    Line& line = at->second;
    if (line.waiting.empty() || line.running >= kThreadsOfOne) return false;
    work = std::move(line.waiting.front());
    line.waiting.pop_front();
    --state.waiting;
    ++line.running;
    state.last_owner = at->first;
    return true;
  };
  const auto after = state.lines.upper_bound(state.last_owner);
  for (auto at = after; at != state.lines.end(); ++at) {
    if (try_line(at)) return true;
  }
  for (auto at = state.lines.begin(); at != after; ++at) {
    if (try_line(at)) return true;
  }
  return false;
}

void FileThreads::serve(const std::shared_ptr<State>& state) {
  MutexLock lock(state->mutex);
  while (!state->closed) {
    FileWork work;
    if (!take(*state, work)) {
      ++state->idle;
      const auto woken = state->changed.wait_for(lock, kIdle);
      --state->idle;
      if (woken == std::cv_status::timeout) {
        if (!take(*state, work)) break;
      } else {
        continue;
      }
    }
    ++state->reading;
    lock.unlock();
    work.read();
    lock.lock();
    --state->reading;
    if (!state->closed) {
      ++state->delivering;
      lock.unlock();
      work.deliver();
      // The work is destroyed here, because the objects that it uses may end after `delivering`.
      const std::uint32_t owner = work.owner;
      work = {};
      lock.lock();
      --state->delivering;
      const auto line = state->lines.find(owner);
      if (line != state->lines.end() && --line->second.running == 0 &&
          line->second.waiting.empty()) {
        state->lines.erase(line);
      }
    }
    if (state->closed) state->changed.notify_all();
  }
  --state->threads;
}

}  // namespace stdchk::client
