#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/mutex.h"
#include "core/runtime/reactor.h"

namespace stdchk {

/// Runs `question` on the reactor's thread and waits for its result, at most `longest`.
///
/// Threads: any but the reactor's own.
/// Errors: kDeadline; kCancelled when the reactor was stopped; kBusy when its queue of posts is
/// full. After an error, a question that is still queued is dropped. A running question continues,
/// so it may refer only to objects that live on the reactor's thread.
template <class T>
Result<T> ask_reactor(Reactor& reactor, Duration longest, std::function<T()> question) {
  struct Asked {
    Mutex mutex;
    CondVar answered;
    bool given_up STDCHK_GUARDED_BY(mutex) = false;
    std::optional<T> answer STDCHK_GUARDED_BY(mutex);
  };
  const auto asked = std::make_shared<Asked>();
  STDCHK_TRY(reactor.post([asked, question = std::move(question)] {
    {
      const MutexLock lock(asked->mutex);
      if (asked->given_up) return;
    }
    T answer = question();
    const MutexLock lock(asked->mutex);
    asked->answer = std::move(answer);
    asked->answered.notify_one();
  }));
  // A stopped reactor sends no notification, so the loop polls for its end.
  constexpr Duration kLook = std::chrono::milliseconds(20);
  const auto until = std::chrono::steady_clock::now() + longest;
  MutexLock lock(asked->mutex);
  while (!asked->answer && !reactor.stopped() && std::chrono::steady_clock::now() < until) {
    asked->answered.wait_for(lock, kLook);
  }
  if (asked->answer) return std::move(*asked->answer);
  asked->given_up = true;
  return fail(reactor.stopped() ? Code::kCancelled : Code::kDeadline, "reactor.ask");
}

}  // namespace stdchk
