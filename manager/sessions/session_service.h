#pragma once

#include <cstdint>
#include <deque>

#include "core/messages/messages.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/sessions/file_attributes.h"
#include "manager/sessions/placement.h"
#include "manager/sessions/set_rewrites.h"
#include "manager/sessions/totals.h"

namespace stdchk::manager {

/// A SessionService opens and ends the sessions in which clients write files.
///
/// Owns: the record of writes that ended without a commit. Threads: the reactor's.
/// Limits: it remembers the newest 1000 writes without a commit (kAbortedKept).
class SessionService {
 public:
  struct Neighbours {
    Clients& clients;
    SessionTable& sessions;
    Notices& notices;
    Placement& placement;
    SetRewrites& rewrites;
    Totals& totals;
    const FileAttributes& attributes;
  };
  SessionService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, const msg::OpenSession& request, const Call& call);
  void serve(ClientRecord& client, const msg::Place& request, const Call& call);
  void serve(ClientRecord& client, const msg::CloseSession& request, const Call& call);
  void serve(ClientRecord& client, const msg::ListAborted& request, const Call& call);

  /// Returns the client's session. Without such a session it answers the call kFenced, and returns
  /// null.
  SessionRecord* find(const ClientRecord& client, SessionId id, const Call& call);
  /// Adds the client's session on the file, or the one that is resumed.
  SessionRecord& begin(ClientRecord& client, SessionId id, const File& file,
                       std::uint32_t asked_copies, bool waits_for_copies);
  /// Gives a session that is placed by node its home, if it has none.
  void settle_home(SessionRecord& session) { to_.placement.settle_home(session); }
  /// Ends the session. With `clean` its unused space is free at once; otherwise only when the
  /// client is fenced.
  void end(SessionId id, bool clean);
  /// Ends the session, and the generation of the set that it wrote an image of.
  void give_up(SessionId id, bool clean);
  /// Returns the number of the Redundancy that new versions of the file get. `asked` is the client's
  /// wish; 0: none.
  std::uint32_t copies_of(const File& file, std::uint32_t asked) const;
  std::size_t aborted_count() const { return aborted_.size(); }

 private:
  Result<const File*> file_to_open(ClientRecord& client, const msg::OpenSession& request,
                                   bool& created);
  Result<const File*> make_unnamed(const msg::OpenSession& request);
  bool shares_chunks(const VersionData& version, const SessionRecord& session) const;
  void find_similar(const File& file, SessionRecord& session);
  std::uint32_t places_of(const File& file, std::uint32_t copies, bool waits) const;

  Pool& pool_;
  State& state_;
  Neighbours to_;
  std::deque<msg::ListAborted::Entry> aborted_;
};

}  // namespace stdchk::manager
