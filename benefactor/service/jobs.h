#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "benefactor/memory/stop.h"
#include "benefactor/service/job_queues.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"

namespace stdchk::benefactor {

/// An Order has the deadline, the answer's receiver and the manager of one request.
struct Order {
  Time deadline{};
  rpc::Responder respond;
  std::weak_ptr<rpc::Peer> asked_by;  ///< a job whose link is gone is not begun
};

/// A Jobs has workers carry out the manager's requests. It answers each job once: with the job's
/// answer, or at the deadline.
///
/// Owns: the workers, unless the caller gives an executor. There are 3 threads for drain pieces, 2
/// for finishes and mirrored changes, and 1 each for moves and checks. Each drain job that hangs
/// gets its thread replaced, up to kDrainThreadsMax threads.
/// Threads: the reactor's. The work runs on the workers.
/// Limits: kMax jobs under way. More jobs are answered kBusy.
class Jobs {
 public:
  using Work = std::function<rpc::Answer()>;
  enum class Worker : std::uint8_t { kMoves, kChecks };

  static constexpr std::size_t kMax = 256;
  static constexpr std::size_t kDrainThreadsMax = 34;

  /// `executor` may be null. `stop` outlives this.
  Jobs(Reactor& reactor, Executor* executor, Stop& stop);
  /// Waits for the chunk that each worker is working on, not for the rest of its job, if `stop` was
  /// requested before.
  ~Jobs();
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  void start(Worker worker, Order order, Work work);
  /// Runs a change of names in its queue. The manager enforces all other orders; only repeats must
  /// stay in order here.
  void start_in_order(JobQueues::Key queue, Order order, Work work);
  /// Starts a job that changes no names, in a queue of its own.
  void start_alone(Order order, Work work);
  /// Starts a drain of pieces of a file. `attempt` numbers the manager's attempts. Refuses the
  /// attempt when two earlier attempts hang.
  void start_drain(FileId file, std::uint64_t attempt, Order order, Work work);
  std::size_t count() const { return jobs_.size(); }

 private:
  struct Job {
    rpc::Responder respond;
    TimerId timer;
  };
  /// Work in the drain directory, by job number. It may outlast its job.
  struct Drain {
    FileId file;  ///< only for pieces
    std::uint64_t attempt = 0;
    TimerId timer;
  };
  /// The threads of this object; unused when there is an executor.
  struct Workers {
    ThreadExecutor pieces{"stdchk-drain", 3};
    ThreadExecutor names{"stdchk-names", 2};
    ThreadExecutor moves{"stdchk-move", 1};
    ThreadExecutor checks{"stdchk-scrub", 1};
  };

  Executor& worker(ThreadExecutor Workers::*own);
  std::uint64_t add(Executor& executor, Order order, Work work);
  void watch(std::uint64_t number, ThreadExecutor Workers::*own, FileId file,
             std::uint64_t attempt);
  void finish(std::uint64_t number, rpc::Answer answer);
  void end_drain(std::uint64_t number);

  Reactor& reactor_;
  Executor* const executor_;
  Stop& stop_;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::uint64_t made_ = 0;
  std::unordered_map<std::uint64_t, Drain> drains_;
  std::unique_ptr<JobQueues> names_;  ///< runs on workers_
  std::unique_ptr<Workers> workers_;
  Lifetime lifetime_;
};

}  // namespace stdchk::benefactor
