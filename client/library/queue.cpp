// Asynchronous calls of the C interface.
#include "client/library/queue.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "client/library/errors.h"
#include "client/library/objects.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"

using namespace stdchk::client::library;
using stdchk::Code;
using stdchk::MutexLock;
using stdchk::Result;
using stdchk::Status;

namespace {

constexpr unsigned kDepthMax = 4096;
constexpr unsigned kThreadsMax = 64;
constexpr unsigned kThreadsDefaultMax = 4;

stdchk_completion run(const stdchk_queue::Call& call) {
  stdchk_completion result{};
  result.tag = call.tag;
  switch (call.kind) {
    case stdchk_queue::Kind::kWrite:
      result.result = stdchk_pwrite(call.file, call.bytes, call.count, call.offset);
      break;
    case stdchk_queue::Kind::kRead:
      result.result = stdchk_pread(call.file, call.bytes, call.count, call.offset);
      break;
    case stdchk_queue::Kind::kSync:
      result.result = stdchk_sync(call.file);
      break;
    case stdchk_queue::Kind::kClose:
      result.result = stdchk_close(call.file);
      break;
  }
  if (result.result >= 0) return result;
  result.error = errno;
  result.code = stdchk_error_code();
  const std::size_t length = std::min(std::strlen(stdchk_error()), sizeof(result.message) - 1);
  std::memcpy(result.message, stdchk_error(), length);
  return result;
}

int queue_call(stdchk_queue* queue, const stdchk_queue::Call& call) {
  const Status added = queue->add(call);
  return added ? 0
               : failed(Code::kWouldBlock, "stdchk_queue: the queue is full; fetch results first.");
}

}  // namespace

Result<std::unique_ptr<stdchk_queue>> stdchk_queue::create(std::size_t depth, std::size_t threads) {
  stdchk::Descriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return stdchk::fail_errno("stdchk_queue_create eventfd");
  std::unique_ptr<stdchk_queue> queue(new stdchk_queue(depth, std::move(event)));
  for (std::size_t i = 0; i < threads; ++i) {
    queue->threads_.push_back(
        stdchk::start_without_signals([queue = queue.get()] { queue->work(); }));
  }
  return queue;
}

stdchk_queue::~stdchk_queue() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status stdchk_queue::add(const Call& call) {
  const MutexLock lock(mutex_);
  if (calls_.size() + results_.size() >= depth_) {
    return stdchk::fail(Code::kWouldBlock, "stdchk_queue");
  }
  calls_.push_back(call);
  work_.notify_one();
  return {};
}

std::list<stdchk_queue::Call>::iterator stdchk_queue::next_runnable() {
  for (auto call = calls_.begin(); call != calls_.end(); ++call) {
    if (call->running) continue;
    const bool waits = std::any_of(calls_.begin(), call, [&](const Call& earlier) {
      return earlier.file == call->file && (earlier.is_barrier() || call->is_barrier());
    });
    if (!waits) return call;
  }
  return calls_.end();
}

void stdchk_queue::work() {
  MutexLock lock(mutex_);
  for (;;) {
    const auto call = next_runnable();
    if (call == calls_.end()) {
      if (ends_) return;
      work_.wait(lock);
      continue;
    }
    call->running = true;
    const Call copy = *call;
    lock.unlock();
    const stdchk_completion result = run(copy);
    lock.lock();
    calls_.erase(call);
    put(result);
  }
}

void stdchk_queue::put(const stdchk_completion& result) {
  results_.push_back(result);
  // The counter cannot overflow: it holds at most kDepthMax results.
  eventfd_write(event_.get(), 1);
  result_.notify_all();
  work_.notify_all();  // a barrier, or calls behind one, may be runnable now
}

std::size_t stdchk_queue::fetch(stdchk_completion* out, std::size_t count, unsigned timeout_ms) {
  MutexLock lock(mutex_);
  const auto something = [&]() STDCHK_REQUIRES(mutex_) {
    return !results_.empty() || calls_.empty();
  };
  result_.wait_for(lock, std::chrono::milliseconds(timeout_ms), something);
  const std::size_t fetched = std::min(count, results_.size());
  for (std::size_t i = 0; i < fetched; ++i) {
    out[i] = results_.front();
    results_.pop_front();
  }
  eventfd_t counted = 0;
  if (results_.empty()) eventfd_read(event_.get(), &counted);
  return fetched;
}

std::size_t stdchk_queue::held() const {
  const MutexLock lock(mutex_);
  return calls_.size() + results_.size();
}

extern "C" {

stdchk_queue* stdchk_queue_create(stdchk_pool* /*pool*/, unsigned depth, unsigned threads) {
  if (depth < 1 || depth > kDepthMax || threads > kThreadsMax) {
    failed(Code::kInvalidArgument,
           "stdchk_queue_create: `depth` is 1 to 4096, and `threads` 0 to 64.");
    return nullptr;
  }
  if (threads == 0)
    threads = std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsDefaultMax);
  auto queue = stdchk_queue::create(depth, threads);
  if (!queue) {
    failed(queue.error());
    return nullptr;
  }
  return queue->release();
}

int stdchk_queue_destroy(stdchk_queue* queue) {
  if (queue->held() > 0) {
    return failed(Code::kBusy,
                  "stdchk_queue_destroy: calls or results are left; fetch them first.");
  }
  delete queue;
  return 0;
}

int stdchk_queue_pwrite(stdchk_queue* queue, stdchk_file* file, const void* bytes, size_t count,
                        uint64_t offset, void* tag) {
  return queue_call(
      queue, {stdchk_queue::Kind::kWrite, file, const_cast<void*>(bytes), count, offset, tag});
}

int stdchk_queue_pread(stdchk_queue* queue, stdchk_file* file, void* bytes, size_t count,
                       uint64_t offset, void* tag) {
  return queue_call(queue, {stdchk_queue::Kind::kRead, file, bytes, count, offset, tag});
}

int stdchk_queue_sync(stdchk_queue* queue, stdchk_file* file, void* tag) {
  return queue_call(queue, {stdchk_queue::Kind::kSync, file, nullptr, 0, 0, tag});
}

int stdchk_queue_close(stdchk_queue* queue, stdchk_file* file, void* tag) {
  return queue_call(queue, {stdchk_queue::Kind::kClose, file, nullptr, 0, 0, tag});
}

int stdchk_queue_wait(stdchk_queue* queue, struct stdchk_completion* out, int count,
                      unsigned timeout_ms) {
  if (count <= 0)
    return failed(Code::kInvalidArgument, "stdchk_queue_wait: `count` must be above 0.");
  return static_cast<int>(queue->fetch(out, static_cast<std::size_t>(count), timeout_ms));
}

int stdchk_queue_descriptor(stdchk_queue* queue) { return queue->descriptor(); }

}  // extern "C"
