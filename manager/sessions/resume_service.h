#pragma once

#include <cstdint>
#include <vector>

#include "core/messages/messages.h"
#include "manager/arenas/extent_checks.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/sessions/file_attributes.h"
#include "manager/sessions/session_service.h"
#include "manager/sessions/set_rewrites.h"

namespace stdchk::manager {

/// A ResumeService resumes sessions of an earlier epoch: their clients report what they have
/// stored.
///
/// Threads: the reactor's.
class ResumeService {
 public:
  struct Neighbours {
    SessionTable& session_table;
    SessionService& sessions;
    ExtentChecks& checks;
    SetRewrites& rewrites;
    const FileAttributes& attributes;
  };
  ResumeService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, const msg::ResumeSession& request, const Call& call);

 private:
  Status check_resumed_name(const msg::ResumeSession& request) const;
  Status remake_pending(const ClientRecord& client, const msg::ResumeSession& request);
  Status take_attributes(const msg::ResumeSession& request);
  Result<const File*> file_to_resume(const ClientRecord& client, const msg::ResumeSession& request);
  Status begin_resume(ClientRecord& client, const msg::ResumeSession& request);
  Status adopt(SessionRecord& session, Resumption& resumption, const msg::ResumeSession& request);
  void resumed(SessionId id, bool committed, const std::vector<std::vector<Extent>>& places,
               const ExtentChecks::Missing& missing, const Call& call);

  Pool& pool_;
  State& state_;
  Neighbours to_;
};

}  // namespace stdchk::manager
