#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/recovery/log_replicas.h"

namespace stdchk::manager {

/// An Admissions decides when a manager that has started may register clients and benefactors, and
/// whether it still is the pool's manager.
///
/// Owns: the registrations that wait. Threads: the reactor's.
/// Errors: a peer may prove that a later manager serves the pool, or that the journal has lost its
/// end. From then on registrations fail with kBusy, and all changes with kReadOnly.
class Admissions {
 public:
  /// The knowledge that a peer has of this pool's managers.
  struct Known {
    Epoch epoch;
    /// A record of that epoch that the peer's answer relied on; 0: none.
    std::uint64_t sequence = 0;
    bool met = false;  ///< this manager has answered the peer before
  };
  Admissions(Pool& pool, SessionTable& sessions, LogReplicas& logs)
      : pool_(pool), sessions_(sessions), logs_(logs) {}

  /// Begins the waits of a manager that has loaded its journal. Without `compares` the journal is
  /// not compared with what peers know: it was rebuilt.
  void start(bool compares);
  /// The manager's epoch is durable.
  void epoch_is_durable();
  /// Ends waits whose time is up.
  void run();
  /// Moves the ends of all waits that had not passed at `before`.
  void discount(Duration pause, Time before);

  /// Returns true, and keeps `retry` for later, while no peer may register.
  bool wait_for_epoch(std::function<void()> retry);
  /// As wait_for_epoch(), but for clients, which wait until benefactors store the metadata again.
  bool wait_for_log_stores(std::function<void()> retry);
  /// As wait_for_epoch(), while benefactors in the journal have not come. `known` is the benefactor
  /// that asks now.
  bool wait_for_benefactors(BenefactorId known, std::function<void()> retry);
  /// Lets clients register that waited for benefactors to store the metadata, if they may now.
  void admit_waiting_clients();

  /// Returns true, and answers the call with kBusy, when this manager may change nothing any more.
  bool is_outdated(const Known& known, const Call& call);
  /// Serves a standby's request.
  void follow(const msg::FollowManager& request, const Call& call);
  /// Returns true when the standby was heard within a lease.
  bool has_live_standby() const;

 private:
  std::string damage(const Known& known) const;
  bool awaits_benefactors() const { return benefactors_until_ != Time{}; }
  bool waits_for_log_stores() const;
  void end_benefactors_wait();

  Pool& pool_;
  SessionTable& sessions_;
  LogReplicas& logs_;
  std::string outdated_;  ///< reason why this manager may change nothing any more, or empty
  std::optional<Time> standby_heard_;
  /// Ids contain the epoch. If a crash lost the epoch, the next start would make the same ids
  /// again. So registrations wait until the epoch is durable.
  bool epoch_durable_ = false;
  std::vector<std::function<void()>> at_epoch_;
  /// Until this time, or until all benefactors in the journal have come, benefactors get no answer.
  /// So the logs of all benefactors are still unchanged if one of them reveals that the journal
  /// lost a record.
  Time benefactors_until_{};
  std::set<BenefactorId> awaited_;
  std::vector<std::function<void()>> at_benefactors_;
  /// Until this time clients wait for benefactors to store the metadata again: what clients are
  /// answered must survive the loss of this disk.
  Time log_stores_until_{};
  std::vector<std::function<void()>> at_log_stores_;
};

}  // namespace stdchk::manager
