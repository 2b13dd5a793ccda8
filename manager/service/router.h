#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/locks/lock_service.h"
#include "manager/pool/pool.h"
#include "manager/service/admin_service.h"
#include "manager/service/admissions.h"
#include "manager/service/benefactor_service.h"
#include "manager/service/client_service.h"
#include "manager/service/connections.h"
#include "manager/service/name_service.h"
#include "manager/service/read_service.h"
#include "manager/sessions/commit_service.h"
#include "manager/sessions/lease_service.h"
#include "manager/sessions/resume_service.h"
#include "manager/sessions/session_service.h"

namespace stdchk::manager {

/// A Router passes each request to the service that serves it, when its sender may ask for it. A
/// repeated change is answered from the client's recent replies.
///
/// Threads: the reactor's.
/// Errors: a request that its sender may not make fails with kRefused. A request of a client that
/// has ended fails with kFenced.
class Router {
 public:
  struct Services {
    Clients& clients;
    Admissions& admissions;
    NameService& names;
    ReadService& reads;
    SessionService& sessions;
    LeaseService& leases;
    CommitService& commits;
    ResumeService& resumption;
    LockService& locks;
    ClientService& members;
    BenefactorService& benefactors;
    AdminService& administration;
  };
  Router(Pool& pool, Connections& connections, Services services)
      : pool_(pool), connections_(connections), to_(services) {}

  void serve(Connection& connection, msg::RequestEnvelope envelope, Time deadline,
             rpc::Responder respond);
  std::uint64_t requests_served() const { return requests_served_; }
  const RequestCounts& request_counts() const { return *request_counts_; }

 private:
  template <class M>
  void handle(Connection& connection, M& request, const Call& call);
  /// Returns a function that handles the request again, unless the connection has gone by then.
  template <class M>
  std::function<void()> handle_again(const Connection& connection, M& request, const Call& call);
  template <class M>
  void handle_registration(Connection& connection, M& request, const Call& call);
  template <class M>
  void handle_client(Connection& connection, M& request, const Call& call);
  template <class M>
  void change(Connection& connection, ClientRecord& client, M& request, const Call& call);
  template <class M>
  void pass(Connection& connection, ClientRecord& client, M& request, const Call& call);

  Pool& pool_;
  Connections& connections_;
  const Services to_;
  std::uint64_t requests_served_ = 0;
  std::shared_ptr<RequestCounts> request_counts_ = std::make_shared<RequestCounts>();
};

}  // namespace stdchk::manager
