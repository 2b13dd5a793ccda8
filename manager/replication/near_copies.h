#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/arenas/scrubber.h"
#include "manager/arenas/unanswered_writes.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_traffic.h"
#include "manager/space/free_space.h"
#include "manager/state/chunk_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A NearCopies makes temporary copies of chunks on the hosts of readers, while readers on several
/// hosts read one version. Their benefactors pass each chunk on to each other, so that it leaves a
/// benefactor that stores it about once (docs/decisions/0083).
///
/// A target is a benefactor that gets near copies for the readers on its host. An idle target
/// gets the chunk that the fewest hosts have, among the chunks that its readers want. The first near
/// copy of a chunk comes from a stored copy, all others from near copies. A benefactor sends to one
/// target at a time.
///
/// | state of a want | event                                                     | next state    |
/// |-----------------|-----------------------------------------------------------|---------------|
/// | waiting         | its target is idle, and a source of the chunk is idle     | sent          |
/// | sent            | the copy has the right checksum                           | answered      |
/// | sent            | the copy failed, for the third time                       | answered none |
/// | sent            | the copy failed                                           | waiting       |
/// | sent            | kPatience without a copy for this target                  | answered none |
/// | waiting         | the same, and no target got a copy; or 10 s without       | answered none |
/// | any             | 10 s since the first reader asked                         | answered none |
/// | any             | no room; the target is lost; the group ends               | answered none |
///
/// A reader whose want is answered none reads the copies of the chunk map, as readers do alone.
///
/// State and journal know no near copies, and redundancy never counts them. A group pins its
/// version, so that its chunks keep their indexes.
///
/// Owns: the space of near copies. Threads: the reactor's.
/// Errors: a target that does not answer gets nothing for 10 s. The space that it may still write
/// to stays reserved until it answers.
/// Limits: near copies use at most half of a benefactor's other free memory, and all together are
/// at most 2^19; the oldest go first. Each turn of the reactor plans for about 4096 wants.
/// A group's copies go when readers on fewer than kHostsKept hosts have the version open, or nobody
/// has asked for kIdle. All go when give_up() is called for want of space.
class NearCopies {
 public:
  /// A version is shared when readers on so many hosts with benefactors have it open.
  static constexpr std::size_t kHostsMin = 3;
  /// The version stays shared while readers on so many hosts have it open.
  static constexpr std::size_t kHostsKept = 2;
  static constexpr Duration kPatience = std::chrono::seconds(3);
  static constexpr Duration kIdle = std::chrono::seconds(10);

  /// A Key names a group: a version that is shared.
  struct Key {
    FileId file;
    Version version = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Wanted {
    ChunkIndex chunk = kNoChunk;
    std::uint64_t offset = 0;  ///< in the file
    BenefactorId at;           ///< the target
  };
  /// Called once. Nothing: the reader has to use the stored copies.
  using Done = std::function<void(std::optional<Extent>)>;
  struct Figures {
    std::uint64_t copies = 0;  ///< near copies that were made
    std::uint64_t copied_bytes = 0;
    std::uint64_t stored_bytes = 0;  ///< part of copied_bytes: read from copies that count
    bool operator==(const Figures&) const = default;
  };

  NearCopies(Pool& pool, CopyTraffic& traffic, Scrubber& scrubber);

  /// Returns the benefactor that takes near copies for readers on that host.
  std::optional<BenefactorId> benefactor_on(const std::string& host_token);
  bool is_shared(const Key& key) const { return groups_.contains(key); }
  /// Begins a group. Returns false when near copies are off, or memory is short.
  bool share(const Key& key);
  /// Finds or makes a copy of the chunk on the target's host. The chunk is one of the version's.
  void find(const Key& key, const Wanted& wanted, Done done);
  void run();
  /// Ends a group: frees its copies, and unpins its version. Copies under way are freed when they
  /// have come.
  void end(const Key& key);
  /// A benefactor has come or gone, or wants to leave.
  void benefactors_changed();
  /// Frees all near copies, because memory is short, and makes none for 10 s. Returns true when
  /// there were any.
  bool give_up();
  const Figures& figures() const { return figures_; }
  /// Calls `visit(benefactor, range)` for the ranges of near copies, complete or not.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [id, target] : targets_) {
      for (const auto& [number, copy] : target.copies) visit(id, copy.range);
    }
    for (const auto& [number, sent] : sent_) {
      for (const Item& item : sent.items) visit(sent.target, item.to);
    }
    unanswered_.for_each(visit);
  }

 private:
  using ChunkKey = std::pair<Key, ChunkIndex>;
  struct Holders {
    std::vector<Extent> copies;
    std::size_t under_way = 0;
    Time expected{};  ///< after this time nobody waits for a copy under way
  };
  struct Group {
    std::uint64_t number = 0;  ///< differs from that of an earlier group with the same key
    Time asked{};
    std::map<ChunkIndex, Holders> chunks;
  };
  struct Copy {
    ChunkKey chunk;
    Range range;
  };
  struct Want {
    std::uint64_t offset = 0;
    Time since{};
    bool sent = false;
    unsigned failures = 0;
    std::vector<Done> waiting;
  };
  struct Target {
    std::map<ChunkKey, Want> wants;
    std::map<std::uint64_t, Copy> copies;         ///< by number: the oldest first
    std::map<ChunkKey, std::uint64_t> number_of;  ///< in `copies`
    std::uint64_t bytes = 0;                      ///< of `copies`
    bool busy = false;
    Time moved{};         ///< its last copy ended, or its first want came
    Time paused_until{};  ///< no copies before this time
  };
  struct Item {
    ChunkKey chunk;
    std::uint64_t group = 0;
    Extent from;
    Range to;
    bool stored = false;  ///< `from` is a copy that counts
  };
  struct Sent {
    BenefactorId source;
    BenefactorId target;
    std::vector<Item> items;
    std::uint64_t bytes = 0;
  };
  struct Planning {
    bool posted = false;
    std::size_t unplanned = 0;  ///< targets that the next plan looks at
    BenefactorId first;         ///< the next plan begins behind this target
  };
  struct Source {
    Extent at;
    bool stored = false;
  };

  bool can_take(BenefactorId id) const;
  std::optional<Extent> copy_on_host(const Key& key, const Wanted& wanted) const;
  bool is_sending(BenefactorId id) const;
  std::optional<Source> source_of(const Group& group, ChunkIndex chunk, BenefactorId only) const;
  std::size_t holder_count(const ChunkKey& chunk) const;
  void plan_soon();
  void post_plan();
  void plan();
  void review();
  std::size_t plan_for(BenefactorId id, Target& target);
  Sent choose(BenefactorId id, const Target& target) const;
  bool take_space(Sent& sent, Target& target);
  void send(Sent sent);
  void done(std::uint64_t number, const rpc::Answer& answer);
  Holders* holders_of(const Item& item);
  void keep(const Sent& sent, const Item& item);
  void failed(const Sent& sent, const Item& item, bool corrupt);
  void answer(BenefactorId id, const ChunkKey& chunk, std::optional<Extent> at);
  void refuse(BenefactorId id);
  void answer_overdue(BenefactorId id, Target& target);
  void drop(const ChunkKey& chunk, BenefactorId id);
  void drop_oldest(BenefactorId id, const Target& target);
  void forget(const ChunkKey& chunk, BenefactorId id);
  void drop_target(BenefactorId id);

  Pool& pool_;
  CopyTraffic& traffic_;
  Scrubber& scrubber_;
  std::map<Key, Group> groups_;
  std::map<BenefactorId, Target> targets_;
  std::map<BenefactorId, Time> sending_;  ///< sources, and when they count as idle at the latest
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t numbers_made_ = 0;  ///< of groups, requests and copies
  UnansweredWrites unanswered_;
  std::map<std::string, BenefactorId> hosts_;  ///< by host token
  bool hosts_stale_ = true;
  bool review_ = false;
  Planning planning_;
  Time moved_{};  ///< any target got a copy
  Time off_until_{};
  Figures figures_;
};

}  // namespace stdchk::manager
