#include "client/engine/work_queue.h"

#include <memory>
#include <utility>

namespace stdchk::client {

void WorkQueue::call(Work::Call call) {
  calls_.push_back(std::move(call));
  wake();
}

void WorkQueue::read(Transfer& transfer) {
  reads_.push_back(&transfer);
  wake();
}

void WorkQueue::read_first(std::vector<Transfer*> transfers) {
  reads_.insert(reads_.begin(), transfers.begin(), transfers.end());
  wake();
}

void WorkQueue::run_later(std::function<void()> work) {
  executor_work_.push_back(std::move(work));
  wake();
}

void WorkQueue::read_later(FileWork work) {
  file_work_.push_back(std::move(work));
  wake();
}

void WorkQueue::schedule(Session& session) {
  if (!std::exchange(session.scheduled, true)) scheduled_.push_back(session.shared_from_this());
  wake();
}

void WorkQueue::schedule_later(Session& session) {
  if (!std::exchange(session.scheduled, true)) scheduled_.push_back(session.shared_from_this());
  left_behind_ = true;
}

void WorkQueue::schedule_after(Session& session, Duration delay) {
  reactor_.schedule_after(delay, [this, weak = session.weak_from_this()] {
    const Lock lock(shared_.mutex);
    if (const SessionPtr scheduled = weak.lock()) schedule(*scheduled);
  });
}

WorkQueue::Batch WorkQueue::take() {
  woken_ = false;
  Batch batch;
  for (const SessionPtr& session : std::exchange(scheduled_, {})) {
    session->scheduled = false;
    session->plan(batch.planned);
  }
  // Sessions add to the other queues while they plan.
  batch.calls.swap(calls_);
  batch.reads.swap(reads_);
  batch.executor_work.swap(executor_work_);
  batch.file_work.swap(file_work_);
  return batch;
}

bool WorkQueue::take_left_behind() { return std::exchange(left_behind_, false); }

void WorkQueue::clear() {
  scheduled_.clear();
  calls_.clear();
  reads_.clear();
  executor_work_.clear();
  file_work_.clear();
}

void WorkQueue::wake() {
  if (woken_) return;
  woken_ = reactor_.post(pump_).has_value();
  left_behind_ = left_behind_ || !woken_;
}

}  // namespace stdchk::client
