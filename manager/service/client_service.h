#pragma once

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/fences.h"
#include "manager/clients/notices.h"
#include "manager/locks/lock_service.h"
#include "manager/pool/pool.h"
#include "manager/service/admissions.h"
#include "manager/service/benefactor_service.h"
#include "manager/service/connections.h"
#include "manager/sessions/lease_service.h"
#include "manager/sessions/ledger.h"
#include "manager/sessions/session_service.h"

namespace stdchk::manager {

/// A ClientService registers clients, and ends what belongs to them when they leave or their leases
/// run out.
///
/// Threads: the reactor's.
class ClientService {
 public:
  struct Neighbours {
    Clients& clients;
    Connections& connections;
    Admissions& admissions;
    Fences& fences;
    Notices& notices;
    SessionService& sessions;
    LeaseService& leases;
    LockService& locks;
    const BenefactorService& benefactors;
    Ledger& ledger;
  };
  ClientService(Pool& pool, Neighbours neighbours);

  void serve(Connection& connection, msg::RegisterClient request, const Call& call);
  void serve(ClientRecord& client, const msg::ClientHeartbeat& request, const Call& call);
  void serve(ClientRecord& client, const msg::GoodbyeClient& request, const Call& call);
  /// Notes that the connection's link is closed. The client may come back until its lease ends.
  void closed(Connection& connection);
  /// Ends the clients whose leases have run out.
  void check_leases();
  /// Counts no silence for a time in which this process could receive nothing.
  void discount(Duration pause);

 private:
  void end(ClientId id);

  Pool& pool_;
  Neighbours to_;
};

}  // namespace stdchk::manager
