#include "core/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace stdchk {

ThreadExecutor::ThreadExecutor(const std::string& name, std::size_t threads)
    : name_(name.substr(0, 15)) {
  for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) add_thread();
}

void ThreadExecutor::add_thread() {
  const MutexLock lock(mutex_);
  threads_.push_back(start_without_signals([this] { work_until_closed(); }));
  ::pthread_setname_np(threads_.back().native_handle(), name_.c_str());
}

std::size_t ThreadExecutor::thread_count() const {
  const MutexLock lock(mutex_);
  return threads_.size();
}

ThreadExecutor::~ThreadExecutor() {
  std::deque<std::function<void()>> dropped;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    dropped.swap(queue_);
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void ThreadExecutor::run(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void ThreadExecutor::work_until_closed() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      wake_.wait(lock, [this]() STDCHK_REQUIRES(mutex_) { return closed_ || !queue_.empty(); });
      if (closed_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace stdchk
