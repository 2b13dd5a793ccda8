#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/clients/rewriters.h"
#include "manager/pool/failure_domains.h"
#include "manager/state/chunk_table.h"
#include "manager/state/state.h"

/// Records of running clients: soft state, which a restart loses.
namespace stdchk::manager {

/// A grant, and which parts of it committed maps use.
struct GrantRecord {
  Grant grant;
  std::map<std::uint64_t, std::uint64_t> used;  ///< offset -> length in bytes
  /// A write into it failed: its space is not used before a fence.
  bool tainted = false;

  bool contains(std::uint64_t offset, std::uint64_t bytes) const {
    return offset >= grant.offset && bytes <= grant.length &&
           offset - grant.offset <= grant.length - bytes;
  }
  bool overlaps_used(std::uint64_t offset, std::uint64_t bytes) const;
  /// Calls `visit(offset, bytes)` for each part that no committed map uses.
  template <class Visit>
  void for_each_unused(Visit visit) const {
    std::uint64_t at = grant.offset;
    for (const auto& [offset, bytes] : used) {
      if (offset > at) visit(at, offset - at);
      at = offset + bytes;
    }
    if (at < grant.offset + grant.length) visit(at, grant.offset + grant.length - at);
  }
};

/// Benefactors that hold chunks of a session together. A chunk whose first place is on `first` has
/// all its places on `members`. With one place for each chunk, a set has one member.
struct PlaceSet {
  BenefactorId first;
  std::vector<BenefactorId> members;
};

/// The sets of places to which a session writes its chunks, in turn.
struct StripeSets {
  std::vector<PlaceSet> sets;
  std::size_t next = 0;  ///< counts the grants; modulo the number of sets, the next set's index
  /// Placement by node: the domain of the writer's node (FailureDomains::kHost). 0: striped.
  FailureDomains::Domain node = 0;
  /// With `node`: the benefactor that takes all chunks as far as it has room. None until the first
  /// request for space.
  BenefactorId home{};
};

/// The committed version of a series that a session compares its chunks with.
struct SimilarVersion {
  FileId file;  ///< pinned unless none
  Version version = 0;
};

/// A commit that comes in several messages, until it is applied.
struct PartialCommit {
  ChunkMap parts;  ///< the parts received so far
  std::uint32_t next_part = 0;
  bool proven = false;  ///< benefactors have confirmed all its extents
};

/// A session of an earlier epoch that its client reports in several parts.
struct Resumption {
  Version base = 0;                   ///< the version on which the session is based
  bool ahead = false;                 ///< the file has a newer version
  std::map<Extent, Chunk> of_newest;  ///< chunks of the newest version, by place
  std::uint64_t stored = 0;           ///< chunks that the client has reported
  std::uint64_t committed = 0;        ///< reported chunks that are in the newest version
  std::uint32_t next_part = 0;
  std::map<BenefactorId, std::deque<msg::CheckExtents::Checked>> to_check;
  std::vector<std::vector<Extent>> places;  ///< the places of to_check, by chunk
};

/// An open session: the settings of its open request, the space that it holds, and its commit.
struct SessionRecord {
  SessionId id;
  ClientId client;
  FileId file;
  bool truncate = false;
  std::uint64_t opened = 0;  ///< the newest commit when it was opened
  std::optional<Rewriters::Image> writes_again;
  std::uint32_t copies = 1;  ///< of each chunk
  std::uint32_t places = 1;  ///< the number of places to which its client writes each chunk
  std::set<Extent> missing;  ///< extents whose copy is lost
  Proof proof = Proof::kCompletion;
  Version base = 0;  ///< pinned unless 0
  SimilarVersion similar;
  std::map<GrantId, GrantRecord> grants;
  std::set<ChunkIndex> holds;
  StripeSets stripe;
  PartialCommit commit;
  std::unique_ptr<Resumption> resumption;  ///< set while parts of the client's report are missing
  std::optional<Time> short_since;         ///< time of its first request for space that failed
};

/// A SessionTable holds the sessions that are open, and what planners must know of them. It is soft
/// state: a restarted manager begins without sessions, and clients resume them.
///
/// Threads: one.
class SessionTable {
 public:
  using Map = std::unordered_map<SessionId, SessionRecord>;
  const Map& all() const { return sessions_; }
  bool contains(SessionId id) const { return sessions_.count(id) > 0; }
  /// Returns null if the session is not open.
  SessionRecord* find(SessionId id);
  SessionRecord& at(SessionId id) { return sessions_.at(id); }

  SessionRecord& begin(SessionId id, ClientId client, FileId file);
  /// Takes the session out of the table. `id` must be open.
  SessionRecord end(SessionId id);
  /// Returns the number of sessions that write the file.
  std::size_t count_of(FileId file) const;

  void add_grant(SessionRecord& session, const Grant& grant);
  void drop_grant(SessionRecord& session, std::map<GrantId, GrantRecord>::iterator grant);
  /// Returns true when a session has grants.
  bool writing() const { return writers_ > 0; }
  /// Returns the number of other sessions that have grants.
  std::size_t other_writers(const SessionRecord& session) const {
    return writers_ - (session.grants.empty() ? 0 : 1);
  }
  /// Notes that space was granted now.
  void note_grant(Time now) { granted_last_ = now; }
  Time granted_last() const { return granted_last_; }
  /// Bytes granted to sessions and not committed.
  std::uint64_t granted_bytes() const;
  std::size_t grant_count() const;

  /// Lets clients of earlier epochs resume their sessions until `until`. Nothing is granted before.
  void let_resume(Time until) { resume_until_ = until; }
  void end_resuming() { resume_until_ = {}; }
  /// Returns true while sessions of an earlier epoch may still be resumed.
  bool resuming() const { return resume_until_ != Time{}; }
  Time resume_until() const { return resume_until_; }

  /// Calls `visit(chunk)` for each hold of a session (rule M4).
  template <class Visit>
  void for_each_hold(Visit visit) const {
    for (const auto& [id, session] : sessions_) {
      for (const ChunkIndex chunk : session.holds) visit(chunk);
    }
  }
  /// Counts, for each file, pins by sessions that have truncated the file and not committed yet.
  /// These sessions need the version, but no bytes of it.
  std::unordered_map<FileId, std::uint32_t> pins_without_bytes(const State& state) const;

 private:
  Map sessions_;
  std::unordered_map<FileId, std::size_t> counts_;  ///< sessions of each file that has one
  std::size_t writers_ = 0;                         ///< sessions with grants
  Time granted_last_{};
  Time resume_until_{};
};

}  // namespace stdchk::manager
