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

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/chunk_table.h"
#include "transport/rpc.h"

/// What the manager knows of running clients: soft state, gone when it restarts.
namespace stdchk::manager {

/// A grant and what of it committed maps use.
struct GrantRecord {
  Grant grant;
  std::map<std::uint64_t, std::uint64_t> used;  ///< offset -> bytes
  bool tainted = false;                         ///< a write into it failed: no use before a fence

  bool contains(std::uint64_t offset, std::uint64_t bytes) const {
    return offset >= grant.offset && bytes <= grant.length &&
           offset - grant.offset <= grant.length - bytes;
  }
  bool overlaps_used(std::uint64_t offset, std::uint64_t bytes) const;
  /// The parts that no committed map uses: calls `visit(offset, bytes)`.
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

/// A Rewriters knows which images that have content are being written again, from nothing.
class Rewriters {
 public:
  using Set = std::tuple<FileId, std::string, std::uint64_t>;  ///< folder, application, timestep
  struct Image {
    Set set;
    std::uint64_t written = 0;  ///< its content
    std::uint64_t opened = 0;   ///< its session
  };
  void add(const Image& image) { sets_[image.set].emplace(image.written, image.opened); }
  void remove(const Image& image);
  /// When a session was opened that writes an image of the set again whose content is newer than
  /// `begun`; 0: there is none.
  std::uint64_t opened(const Set& set, std::uint64_t begun) const;

 private:
  std::map<Set, std::multimap<std::uint64_t, std::uint64_t>> sets_;
};

/// Benefactors that chunks of a session go to together: those that have their first place on
/// `first`. Without several places of a chunk: each for itself.
struct PlaceSet {
  BenefactorId first;
  std::vector<BenefactorId> members;
};

struct SessionRecord {
  SessionId id;
  ClientId client;
  FileId file;
  bool truncate = false;
  std::uint64_t opened = 0;  ///< the newest commit at that time
  std::optional<Rewriters::Image> writes_again;
  std::uint32_t copies = 1;  ///< of each chunk
  std::uint32_t places = 1;  ///< that its client writes each chunk to
  std::set<Extent> missing;  ///< of these: nothing was found there
  Proof proof = Proof::kCompletion;
  bool proven = false;  ///< the benefactors have found what is to be committed
  Version base = 0;     ///< pinned when not 0
  FileId similar;       ///< pinned when not none
  Version similar_version = 0;
  std::map<GrantId, GrantRecord> grants;
  std::set<ChunkIndex> holds;
  std::vector<PlaceSet> stripe;
  std::size_t next_in_stripe = 0;
  ChunkMap parts;  ///< of a commit that comes in several
  std::uint32_t next_part = 0;
  std::optional<Time> short_since;  ///< when it first asked for space in vain
};

/// The last replies of one client, so that a repeated request is answered and not done again.
class RecentReplies {
 public:
  static constexpr std::size_t kReplies = 64;
  enum class Seen { kNew, kRunning, kAnswered };
  RecentReplies() = default;
  RecentReplies(const RecentReplies&) = delete;
  RecentReplies& operator=(const RecentReplies&) = delete;
  /// Its client has ended: repeats that wait are answered kFenced. What they repeat may yet be
  /// done.
  ~RecentReplies();
  /// kRunning keeps the responder, kAnswered has called it, kNew leaves it.
  Seen begin(std::uint64_t call_id, rpc::Responder& respond);
  /// Calls the responders of repeats that came in the meantime.
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
  rpc::Peer* peer = nullptr;  ///< none while its link is lost
  Time last_heard{};
  std::set<SessionId> sessions;
  std::set<std::pair<FileId, Version>> pins;
  std::uint64_t reader_count = 0;  ///< files that it has open for reading, as it last said
  std::shared_ptr<RecentReplies> replies = std::make_shared<RecentReplies>();
  msg::Invalidate invalidate;  ///< to be sent at the end of the turn
};

/// A Watchers knows who has looked into which directory so lately that it may have cached what it
/// saw.
///
/// Limits: a watch ends one lease of the cache after the last look; nobody may use what is older.
class Watchers {
 public:
  void watch(FileId directory, ClientId client, Time now);
  /// Calls `visit(client)`.
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
