#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "benefactor/copies/job_counts.h"
#include "benefactor/copies/source.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "core/values/types.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A Copier copies extents of other benefactors into its own arena. It attaches to them as clients
/// do, reads by one-sided transfer straight to the copy's place, and checks each copy there.
///
/// It reads instead of having others write. So a late or failed transfer can change only
/// the place that the manager gave for the copy. No such change can happen after this
/// process has ended the read.
///
/// | state of a request | leaves when                                                            |
/// |--------------------|------------------------------------------------------------------------|
/// | waiting            | earlier requests have ended their reads -> linking                      |
/// | linking            | the source is attached -> reading; it cannot be -> answered, all failed |
/// | reading            | every read has ended -> checking                                        |
/// | checking           | a worker has checked the copies -> answered                             |
///
/// Owns: the links to sources, its worker. Threads: the reactor's; checks run on a worker.
/// Errors: the answer lists copies that could not be read or did not match. A request past its
/// deadline is answered kDeadline and dropped before the next one begins.
/// Limits: kReadsMax reads at once, kWaitingMax requests.
class Copier final : public SourceReader {
 public:
  static constexpr std::size_t kReadsMax = 8;
  static constexpr std::size_t kWaitingMax = 64;

  struct Config {
    SourceAccess access;  ///< with the arena registered
    MutableByteSpan arena;
    Executor* executor = nullptr;  ///< null: a thread of its own
    std::shared_ptr<JobCounts> counts = std::make_shared<JobCounts>();
  };
  Copier(Reactor& reactor, Config config);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  void copy(msg::CopyExtents request, Time deadline, rpc::Responder respond);
  /// Ends all work: when it returns, no read can change the arena any more. Requests under way get
  /// no answer.
  void cancel();

 private:
  struct Request;

  void start_next();
  void end_overdue();
  void linked(const Source& source, bool attached);
  void read_more();
  void read_done(std::uint32_t index, const Status& status) override;
  void check();
  void checked(std::uint64_t number, msg::CopyExtents::Reply reply);

  Reactor& reactor_;
  Config config_;
  Sources sources_;
  std::deque<std::unique_ptr<Request>> waiting_;
  std::unique_ptr<Request> current_;  ///< linking or reading
  std::map<std::uint64_t, rpc::Responder> checking_;
  std::uint64_t checks_made_ = 0;
  TimerId retry_;
  Lifetime lifetime_;
  LazyExecutor executor_;  ///< last: destroyed before the members that its work uses
};

}  // namespace stdchk::benefactor
