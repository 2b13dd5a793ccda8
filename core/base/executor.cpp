#include "core/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/base/thread.h"

namespace stdchk {

ThreadExecutor::ThreadExecutor(const std::string& name, std::size_t threads)
    : name_(name.substr(0, 15)) {
  for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) add_thread();
}

void ThreadExecutor::add_thread() {
  const std::lock_guard lock(mutex_);
  threads_.push_back(start_without_signals([this] { work_until_closed(); }));
  ::pthread_setname_np(threads_.back().native_handle(), name_.c_str());
}

std::size_t ThreadExecutor::thread_count() const {
  const std::lock_guard lock(mutex_);
  return threads_.size();
}

ThreadExecutor::~ThreadExecutor() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(queue_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadExecutor::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void ThreadExecutor::work_until_closed() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return closed_ || !queue_.empty(); });
      if (closed_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace stdchk
