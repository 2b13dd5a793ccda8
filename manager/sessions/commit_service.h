#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "manager/arenas/extent_checks.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/pool/replaced_files.h"
#include "manager/replication/copy_planner.h"
#include "manager/sessions/file_attributes.h"
#include "manager/sessions/session_service.h"
#include "manager/sessions/set_rewrites.h"
#include "manager/sessions/totals.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A CommitService makes versions of the slices that sessions have written.
///
/// Owns: the commits that wait for a benefactor to answer. Threads: the reactor's.
class CommitService {
 public:
  struct Neighbours {
    Clients& clients;
    SessionTable& session_table;
    SessionService& sessions;
    Notices& notices;
    ExtentChecks& checks;
    ReplacedFiles& replaced;
    CopyPlanner& copies;
    SetKeeper& sets;
    SetRewrites& rewrites;
    Totals& totals;
    const FileAttributes& attributes;
  };
  CommitService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, msg::Commit& request, const Call& call);
  /// Retries commits that wait for a benefactor.
  void retry();

 private:
  struct Waiting {
    ClientId client;
    msg::Commit request;  ///< the last part; SessionRecord::commit has the slices
    Call call;
  };
  /// The ranges of grants that a commit uses.
  using Carved = std::vector<std::pair<GrantRecord*, Range>>;
  /// The effects of a commit beside its file's content.
  struct Committed {
    FileId file;
    std::optional<NewName> create;
    std::optional<SetRewrites::Set> set;
    std::uint64_t begun_before = 0;  ///< the set's generation before the commit
    std::uint64_t whole_before = 0;
  };
  Status resolve(SessionRecord& session, CommitVersion& command, Carved& carved);
  std::map<Extent, std::uint32_t> unnamed_chunks(const SessionRecord& session,
                                                 const ChunkMap& written) const;
  ChunkIndex find(const SessionRecord& session, const Chunk& chunk, bool own) const;
  Status resolve_chunk(SessionRecord& session, Chunk& chunk, BenefactorId& home,
                       const std::map<Extent, std::uint32_t>& of_file, Carved& carved);
  std::uint32_t conflicts(const SessionRecord& session, const ChunkMap& written) const;
  bool has_unreachable_chunk(SessionRecord& session);
  void prove(ClientId client, SessionRecord& session, const msg::Commit& request, const Call& call);
  void commit_last(ClientRecord& client, SessionRecord& session, const msg::Commit& request,
                   const Call& call);
  CommitVersion command_of(SessionRecord& session, const msg::Commit& request);
  void commit(ClientRecord& client, SessionRecord& session, const msg::Commit& request,
              CommitVersion command, const Carved& carved, const Call& call);
  void committed(ClientRecord& client, SessionRecord& session, const Committed& what);
  std::uint64_t begun(const Committed& what) const;
  std::uint64_t whole(const Committed& what) const;
  void mark_tainted(SessionRecord& session, const std::vector<Extent>& abandoned);

  Pool& pool_;
  State& state_;
  Neighbours to_;
  std::deque<Waiting> waiting_;
};

}  // namespace stdchk::manager
