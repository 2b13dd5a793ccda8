#pragma once

#include <deque>

#include "core/messages/messages.h"
#include "manager/arenas/scrubber.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_checks.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/pool.h"
#include "manager/replication/near_copies.h"
#include "manager/sessions/file_attributes.h"

namespace stdchk::manager {

/// A ReadService tells clients where the bytes of files are: in memory, in a stripe, or in the
/// drain directory.
///
/// Owns: the requests that wait until a change of names in the drain directory has ended.
/// Threads: the reactor's.
class ReadService {
 public:
  struct Neighbours {
    Clients& clients;
    SessionTable& sessions;
    Notices& notices;
    Scrubber& scrubber;
    NearCopies& near;
    const DrainPlanner& drain;
    DrainChecks& drain_checks;
    const FileAttributes& attributes;
  };
  ReadService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, const msg::GetMap& request, const Call& call);
  void serve(ClientRecord& client, const msg::Unpin& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReportWrongCopy& request, const Call& call);
  void serve(ClientRecord& client, const msg::FindNear& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetStripe& request, const Call& call);
  void serve(ClientRecord& client, const msg::ConfirmDrained& request, const Call& call);
  /// Retries requests that wait for the drain directory.
  void retry();

 private:
  struct WaitingMap {
    ClientId client;
    msg::GetMap request;
    Call call;
  };
  struct WaitingConfirm {
    msg::ConfirmDrained request;
    Call call;
  };
  bool has_stripe(const Chunk& chunk) const;
  bool is_shared(const NearCopies::Key& key);
  bool is_read_on(const NearCopies::Key& key, std::size_t hosts) const;
  void confirm(const msg::ConfirmDrained& request, const Call& call);

  Pool& pool_;
  const State& state_;
  Neighbours to_;
  std::deque<WaitingMap> waiting_maps_;
  std::deque<WaitingConfirm> waiting_confirms_;
};

}  // namespace stdchk::manager
