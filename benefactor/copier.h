#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "benefactor/job_counts.h"
#include "benefactor/source.h"
#include "core/executor.h"
#include "core/messages/messages.h"
#include "core/reactor.h"
#include "core/types.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A Copier brings extents of other benefactors into the own arena: it attaches to them as clients
/// do, reads by one-sided transfer straight to where the copy will be, and checks each there.
///
/// Reading, not writing: what is late or goes wrong can only change the place that the manager gave
/// for it, and only while this process has the read under way.
///
/// | state of a request | leaves when                                                            |
/// |--------------------|------------------------------------------------------------------------|
/// | waiting            | those before it have read what they could -> linking                    |
/// | linking            | the source is attached -> reading; it cannot be -> answered, all failed |
/// | reading            | every read has ended -> checking                                        |
/// | checking           | a worker has checked what came -> answered                              |
///
/// Owns: the links to sources, its worker. Threads: the reactor's; checks on a worker.
/// Errors: what could not be read or did not match is listed in the answer. A request whose
///   deadline comes is answered kDeadline by whoever asked; it still ends here before the next
///   begins.
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
  /// Ends everything that is under way: when it returns no read changes the arena any more. What
  /// was asked is not answered.
  void cancel();

 private:
  struct Request;

  void start_next();
  void end_late();
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
  std::shared_ptr<int> alive_ = std::make_shared<int>();
  LazyExecutor executor_;  ///< the last: it ends before what its work looks at
};

}  // namespace stdchk::benefactor
