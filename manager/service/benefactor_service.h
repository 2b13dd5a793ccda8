#pragma once

#include <functional>
#include <map>
#include <vector>

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/fences.h"
#include "manager/clients/notices.h"
#include "manager/pool/pool.h"
#include "manager/recovery/log_replicas.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/near_copies.h"
#include "manager/service/admissions.h"
#include "manager/service/connections.h"

namespace stdchk::manager {

/// A BenefactorService registers benefactors, and watches whether they are alive.
///
/// Owns: registrations that wait for the journal. Threads: the reactor's.
/// Limits: 500 benefactors with links (kBenefactorsMax).
class BenefactorService {
 public:
  struct Neighbours {
    Connections& connections;
    Admissions& admissions;
    Fences& fences;
    Notices& notices;
    CopyPlanner& copies;
    NearCopies& near;
    LogReplicas& logs;
  };
  BenefactorService(Pool& pool, Neighbours neighbours);

  void serve(Connection& connection, msg::RegisterBenefactor request, const Call& call);
  void serve(Connection& connection, const msg::BenefactorHeartbeat& request, const Call& call);
  void serve(Connection& connection, const msg::ListBenefactors& request, const Call& call) const;
  /// Notes that the connection's link is closed.
  void closed(Connection& connection);
  /// Judges by their last heartbeats which benefactors are alive, silent or presumed lost.
  void check_leases();
  /// Counts no silence for a time in which this process could receive nothing.
  void discount(Duration pause);

  std::vector<msg::BenefactorInfo> list() const;
  /// As list(), with tickets for the client at that link's other end.
  std::vector<msg::BenefactorInfo> list_for(const Connection& connection) const;

 private:
  bool admissible(const Connection& connection, msg::RegisterBenefactor& request,
                  const Call& call) const;
  BenefactorId benefactor_of(const msg::RegisterBenefactor& request) const;
  void add(const msg::RegisterBenefactor& request,
           std::function<void(const Result<BenefactorId>&)> admit);
  void admit(Connection& connection, BenefactorId id, const msg::RegisterBenefactor& request,
             const Call& call);
  void answer_when_leaving_is_safe(BenefactorId id, const Call& call);
  msg::BenefactorHeartbeat::Reply heartbeat_reply(BenefactorId id, bool may_leave) const;
  void changed();

  Pool& pool_;
  Neighbours to_;
  /// New benefactors whose record is not journalled yet, with the callbacks that admit them. A
  /// repeated request comes by another link and so adds a callback.
  std::map<BenefactorId, std::vector<std::function<void(const Result<BenefactorId>&)>>> joining_;
};

}  // namespace stdchk::manager
