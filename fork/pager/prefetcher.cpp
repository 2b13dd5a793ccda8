#include "fork/pager/prefetcher.h"

#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace stdchk::pager {

Prefetcher::Prefetcher(std::size_t threads, std::function<void()> fetched)
    : fetched_(std::move(fetched)) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.push_back(start_without_signals([this] { work(); }));
  }
}

Prefetcher::~Prefetcher() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& each : threads_) each.join();
}

void Prefetcher::add(std::weak_ptr<Image> image, const BlockRange& range) {
  {
    const MutexLock lock(mutex_);
    if (queue_.size() >= kQueueMax) {
      ++dropped_;
      return;
    }
    queue_.push_back({std::move(image), range});
  }
  wake_.notify_one();
}

std::uint64_t Prefetcher::dropped() const {
  const MutexLock lock(mutex_);
  return dropped_;
}

void Prefetcher::work() {
  Piece piece = make_piece();
  for (;;) {
    Job job;
    {
      MutexLock lock(mutex_);
      wake_.wait(lock, [this]() STDCHK_REQUIRES(mutex_) { return ending_ || !queue_.empty(); });
      if (ending_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    const std::shared_ptr<Image> image = job.image.lock();
    if (image == nullptr) continue;
    image->fetch_ahead(job.range, piece);
    fetched_();
  }
}

}  // namespace stdchk::pager
