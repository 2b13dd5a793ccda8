#pragma once

#include <map>
#include <vector>

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/sessions.h"
#include "manager/locks/lock_table.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A LockService answers requests for locks on files. A request that must wait is answered when it
/// gets the lock, or with kWaits shortly before its deadline. Its place in the queue stays for
/// limits::kLease more, in which the client must repeat the request.
///
/// Locks are soft state. After a restart, clients claim the locks that they have. Until the time
/// for that is over, the service grants no other lock (kRecovering).
///
/// Owns: the lock table, and the calls that wait.
/// Threads: the reactor's.
class LockService {
 public:
  LockService(Pool& pool, const SessionTable& sessions) : pool_(pool), sessions_(sessions) {}

  void serve(ClientRecord& client, const msg::SetLock& request, const Call& call);
  void serve(ClientRecord& client, const msg::CancelLock& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetLock& request, const Call& call);
  /// The client has ended: others get its locks.
  void end(ClientId client);
  /// Answers calls that come near to their deadline, and forgets requests that no client repeats.
  void tick();
  const LockTable& table() const { return table_; }

 private:
  /// Answers waiting calls that get their lock, or never will.
  void grant();
  void end_waits(const std::vector<WaitId>& ended, msg::LockOutcome outcome);

  Pool& pool_;
  const SessionTable& sessions_;
  LockTable table_;
  std::map<WaitId, Call> calls_;  ///< of requests that wait
};

}  // namespace stdchk::manager
