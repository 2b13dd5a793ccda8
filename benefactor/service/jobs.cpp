#include "benefactor/service/jobs.h"

#include <set>
#include <utility>

#include "benefactor/service/refuse.h"
#include "core/base/log.h"

namespace stdchk::benefactor {
namespace {

constexpr const char* kWhere = "benefactor.job";
constexpr Duration kBusyRetry = std::chrono::milliseconds(200);
constexpr Duration kHangsAfter = std::chrono::seconds(5);
constexpr std::size_t kHangingAttemptsMax = 2;  ///< of one file

}  // namespace

Jobs::Jobs(Reactor& reactor, Executor* executor, Stop& stop)
    : reactor_(reactor), executor_(executor), stop_(stop) {}

Jobs::~Jobs() {
  lifetime_.end();
  workers_.reset();
  for (const auto& [number, drain] : drains_) reactor_.cancel(drain.timer);
  for (auto& [number, job] : jobs_) {
    reactor_.cancel(job.timer);
    job.respond(refuse(Code::kCancelled, kWhere, "The benefactor ends."));
  }
}

Executor& Jobs::worker(ThreadExecutor Workers::*own) {
  if (executor_ != nullptr) return *executor_;
  if (!workers_) workers_ = std::make_unique<Workers>();
  return (*workers_).*own;
}

void Jobs::start(Worker worker, Order order, Work work) {
  const auto own = worker == Worker::kMoves ? &Workers::moves : &Workers::checks;
  add(this->worker(own), std::move(order), std::move(work));
}

void Jobs::start_in_order(JobQueues::Key queue, Order order, Work work) {
  if (!names_) names_ = std::make_unique<JobQueues>(worker(&Workers::names));
  struct OneQueue final : Executor {
    OneQueue(JobQueues& to, JobQueues::Key which) : queues(to), queue(which) {}
    void run(std::function<void()> of) override { queues.run(queue, std::move(of)); }
    JobQueues& queues;
    const JobQueues::Key queue;
  } executor(*names_, queue);
  const std::uint64_t number = add(executor, std::move(order), std::move(work));
  if (number != 0) watch(number, &Workers::names, {}, 0);
}

void Jobs::start_alone(Order order, Work work) {
  start_in_order({false, ~made_}, std::move(order), std::move(work));
}

/// Starts another thread when a job hangs. The storage of a file or a name may hang while other
/// storage works; the job keeps its thread.
void Jobs::watch(std::uint64_t number, ThreadExecutor Workers::*own, FileId file,
                 std::uint64_t attempt) {
  const TimerId timer = reactor_.schedule_after(kHangsAfter, [this, own] {
    if (!workers_) return;
    ThreadExecutor& threads = (*workers_).*own;
    // Jobs that wait in their queue occupy no thread.
    const bool some_are_free = own == &Workers::names && names_->count() < threads.thread_count();
    if (!some_are_free && threads.thread_count() < kDrainThreadsMax) threads.add_thread();
  });
  drains_.emplace(number, Drain{file, attempt, timer});
}

void Jobs::start_drain(FileId file, std::uint64_t attempt, Order order, Work work) {
  std::set<std::uint64_t> hanging;
  for (const auto& [number, drain] : drains_) {
    if (drain.file && drain.file == file && drain.attempt != attempt) hanging.insert(drain.attempt);
  }
  if (hanging.size() >= kHangingAttemptsMax) {
    return order.respond(
        refuse(Code::kBusy, kWhere, "Earlier drains of the file hang.", kHangsAfter));
  }
  const std::uint64_t number = add(worker(&Workers::pieces), std::move(order), std::move(work));
  if (number != 0) watch(number, &Workers::pieces, file, attempt);
}

/// Returns the job's number; 0 if the job was refused.
std::uint64_t Jobs::add(Executor& executor, Order order, Work work) {
  if (jobs_.size() >= kMax) {
    order.respond(refuse(Code::kBusy, kWhere, "Too many jobs wait already.", kBusyRetry));
    return 0;
  }
  const std::uint64_t number = ++made_;
  const TimerId timer = reactor_.schedule_at(order.deadline, [this, number] {
    finish(number, refuse(Code::kDeadline, kWhere, "The storage did not answer in time."));
  });
  jobs_.emplace(number, Job{std::move(order.respond), timer});
  executor.run([this, number, deadline = order.deadline, work = std::move(work),
                asked_by = std::move(order.asked_by), alive = lifetime_.watch()]() mutable {
    // Otherwise the manager has given the job up, or was replaced: another
    // attempt may be under way.
    const bool wanted = reactor_.clock().now() < deadline && !asked_by.expired();
    rpc::Answer answer =
        wanted ? work() : rpc::Answer(refuse(Code::kDeadline, kWhere, "The job came too late."));
    auto hand_back = [this, number, alive, answer = std::move(answer)]() mutable {
      if (alive.expired()) return;
      end_drain(number);
      finish(number, std::move(answer));
    };
    // A full queue empties within milliseconds. If not, the job's timer answers.
    if (!reactor_.post(hand_back)) {
      stop_.sleep(std::chrono::milliseconds(100));
      if (!reactor_.post(hand_back)) log::error("a job's answer was lost: the reactor is stuck");
    }
  });
  return number;
}

void Jobs::end_drain(std::uint64_t number) {
  const auto drain = drains_.find(number);
  if (drain == drains_.end()) return;
  reactor_.cancel(drain->second.timer);
  drains_.erase(drain);
}

void Jobs::finish(std::uint64_t number, rpc::Answer answer) {
  const auto job = jobs_.find(number);
  if (job == jobs_.end()) return;  // its timer has answered
  rpc::Responder respond = std::move(job->second.respond);
  reactor_.cancel(job->second.timer);
  jobs_.erase(job);
  respond(std::move(answer));
}

}  // namespace stdchk::benefactor
