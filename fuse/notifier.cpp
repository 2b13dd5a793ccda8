#include "fuse/notifier.h"

#include <utility>

#include "core/base/mutex.h"

namespace stdchk::mount {

Notifier::Notifier() = default;

Notifier::~Notifier() { stop(); }

void Notifier::start(fuse_session* session) {
  const MutexLock lock(mutex_);
  session_ = session;
  thread_ = std::thread([this] { run(); });
}

void Notifier::stop() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    session_ = nullptr;
    queue_.clear();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Notifier::post(std::function<void(fuse_session*)> call) {
  {
    const MutexLock lock(mutex_);
    if (session_ == nullptr || queue_.size() >= kQueueMax) return;
    queue_.push_back(std::move(call));
  }
  wake_.notify_one();
}

void Notifier::run() {
  MutexLock lock(mutex_);
  while (!ended_) {
    wake_.wait(lock, [this]() STDCHK_REQUIRES(mutex_) { return ended_ || !queue_.empty(); });
    while (!queue_.empty()) {
      auto call = std::move(queue_.front());
      queue_.pop_front();
      fuse_session* session = session_;
      lock.unlock();
      call(session);
      lock.lock();
    }
  }
}

}  // namespace stdchk::mount
