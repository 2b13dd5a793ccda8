#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/pool/pool.h"
#include "manager/pool/replaced_files.h"
#include "manager/sessions/session_service.h"
#include "manager/sessions/touched_directories.h"

namespace stdchk::manager {

/// A LeaseService leases directories to clients that use them alone, and applies the batches of
/// changes that the holders send. Other clients' requests about a leased directory wait here until
/// the holder has returned the lease. docs/decisions/0075 has the states of a directory.
///
/// The leases are journalled. After a restart the manager recalls all leases. Holders have the time
/// of a recall to come back with their last batches.
///
/// Owns: the requests that wait, and the times of recalls.
/// Threads: the reactor's.
/// Errors: a holder that does not return a lease in time loses all its leases, and so does a holder
///   whose batch does not fit. Its later batches fail with kStale.
/// Limits: a holder has kRecallTime to return a lease. A request waits at most until its deadline.
class LeaseService {
 public:
  /// The time in which a holder has to return a lease.
  static constexpr Duration kRecallTime = std::chrono::seconds(5);
  /// The most numbers for new files that a client gets at once.
  static constexpr std::uint32_t kNumbersMax = 4096;

  struct Neighbours {
    const Clients& clients;
    Notices& notices;
    ReplacedFiles& replaced;
    const SessionService& sessions;
  };
  LeaseService(Pool& pool, Neighbours neighbours) : pool_(pool), to_(neighbours) {}

  void serve(ClientRecord& client, const msg::LeaseDirectory& request, const Call& call);
  void serve(ClientRecord& client, const msg::ApplyNames& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReturnLease& request, const Call& call);

  /// Recalls the leases of others that the client's request is about. Returns true when there are
  /// such leases, and has the request wait: when leases have ended, the function is called that
  /// `make_retry()` returns. That function asks here again. Until then the client's later requests
  /// wait, too, if they touch a directory that this request changes.
  template <class M, class MakeRetry>
  bool wait_if_leased(const ClientRecord& client, const M& request, const Call& call,
                      MakeRetry make_retry) {
    if (leases().directories().empty() && ending_.empty() && waiting_.empty()) return false;
    const TouchedDirectories touched = touched_by(pool_.state(), request);
    if (!must_wait_for(client, touched)) return false;
    Waiting one{client.id, {}, call, make_retry()};
    if (touched.changes_names()) one.changes = touched.directories();
    waiting_.push_back(std::move(one));
    return true;
  }
  /// Recalls the leases that the journal knows: the manager has started.
  void start();
  /// The client has ended.
  void end(const ClientRecord& client);
  /// Ends the leases whose holders are too late, and repeats recalls.
  void tick();
  /// Counts no time in which this process could receive nothing.
  void discount(Duration pause);

 private:
  struct Waiting {
    ClientId client;
    std::vector<FileId> changes;  ///< directories whose names the request changes
    Call call;
    std::function<void()> retry;
  };
  const NameLeases& leases() const { return pool_.state().name_leases(); }
  bool must_wait_for(const ClientRecord& client, const TouchedDirectories& touched);
  void recall(FileId directory);
  void notify_holder(FileId directory);
  void end_all(std::uint64_t holder);
  void end_earlier();
  void end(std::uint64_t holder, const std::vector<FileId>& directories,
           std::function<void(const Result<Affected>&)> done);
  void ended(const std::vector<FileId>& directories);
  void repeat_waiting();
  bool has_change_waiting(const ClientRecord& client, FileId directory) const;
  FileId give_numbers(ClientRecord& client, std::uint32_t wanted);
  void apply(ClientRecord& client, const msg::ApplyNames& request, const Call& call);
  void announce(const ClientRecord& client, const msg::ApplyNames& request);

  Pool& pool_;
  Neighbours to_;
  /// The time by which each recalled directory must be returned.
  std::map<FileId, Time> recalled_;
  /// Directories whose leases have ended, but not yet durably.
  std::set<FileId> ending_;
  std::deque<Waiting> waiting_;
  /// When holders of an earlier manager are forgotten that hold nothing; none: they are.
  std::optional<Time> earlier_until_;
};

}  // namespace stdchk::manager
