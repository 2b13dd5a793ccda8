#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/state/chunk_table.h"
#include "transport/rpc.h"

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

/// A Rewriters records which images with content are being written again from nothing.
class Rewriters {
 public:
  using Set = std::tuple<FileId, std::string, std::uint64_t>;  ///< folder, application, timestep
  struct Image {
    Set set;
    std::uint64_t written = 0;  ///< commit number of the content that is being replaced
    std::uint64_t opened = 0;   ///< newest commit when the writing session was opened
  };
  void add(const Image& image) { sets_[image.set].emplace(image.written, image.opened); }
  void remove(const Image& image);
  /// Looks for a session that writes an image of `set` again whose content is newer than `begun`.
  /// Returns the newest commit when it was opened, or 0 when there is no such session.
  std::uint64_t opened(const Set& set, std::uint64_t begun) const;

 private:
  std::map<Set, std::multimap<std::uint64_t, std::uint64_t>> sets_;
};

/// Benefactors that hold chunks of a session together. A chunk whose first place is on `first` has
/// all its places on `members`. With one place for each chunk, a set has one member.
struct PlaceSet {
  BenefactorId first;
  std::vector<BenefactorId> members;
};

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
  bool proven = false;  ///< benefactors have confirmed all extents of the commit under way
  Version base = 0;     ///< pinned unless 0
  FileId similar;       ///< pinned unless none
  Version similar_version = 0;
  std::map<GrantId, GrantRecord> grants;
  std::set<ChunkIndex> holds;
  std::vector<PlaceSet> stripe;
  std::size_t next_in_stripe = 0;
  ChunkMap parts;  ///< the parts received so far of a commit that comes in several
  std::uint32_t next_part = 0;
  std::optional<Time> short_since;  ///< time of its first request for space that failed
};

/// The last replies to one client. A repeated request gets the old answer
/// and is not executed again.
class RecentReplies {
 public:
  static constexpr std::size_t kReplies = 64;
  enum class Seen { kNew, kRunning, kAnswered };
  RecentReplies() = default;
  RecentReplies(const RecentReplies&) = delete;
  RecentReplies& operator=(const RecentReplies&) = delete;
  /// The client has ended: repeats that wait are answered kFenced, although their first call may
  /// still be executed.
  ~RecentReplies();
  /// kRunning keeps the responder, kAnswered has called it, kNew leaves it untouched.
  Seen begin(std::uint64_t call_id, rpc::Responder& respond);
  /// Answers the waiting repeats of this call, too.
  void finish(std::uint64_t call_id, const rpc::Answer& answer);

 private:
  struct Entry {
    bool answered = false;
    rpc::Answer answer;
    std::vector<rpc::Responder> waiting;
  };
  std::map<std::uint64_t, Entry> entries_;
  std::deque<std::uint64_t> order_;
};

struct ClientRecord {
  ClientId id;
  std::string host_name;
  std::string role;
  rpc::Peer* peer = nullptr;  ///< null while its link is lost
  Time last_heard{};
  std::set<SessionId> sessions;
  std::set<std::pair<FileId, Version>> pins;
  /// The number of files it has open for reading, as last reported.
  std::uint64_t reader_count = 0;
  std::shared_ptr<RecentReplies> replies = std::make_shared<RecentReplies>();
  msg::Invalidate invalidate;  ///< sent at the end of the reactor's turn
};

/// A Watchers records which clients may still have cached entries of which directory.
///
/// Limits: a watch ends two cache leases after the last look. A client must not use an entry that
/// is older than its lease.
class Watchers {
 public:
  void watch(FileId directory, ClientId client, Time now);
  /// Calls `visit(client)` for each client that watches `directory`.
  template <class Visit>
  void for_each(FileId directory, Time now, Visit visit) {
    const auto watched = directories_.find(directory);
    if (watched == directories_.end()) return;
    for (const auto& [client, until] : watched->second) {
      if (until >= now) visit(client);
    }
  }
  void forget_old(Time now);

 private:
  std::unordered_map<FileId, std::map<ClientId, Time>> directories_;
};

}  // namespace stdchk::manager
