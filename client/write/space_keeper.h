#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "client/write/grant_set.h"
#include "client/write/session_core.h"

namespace stdchk::client {

/// A SpaceKeeper holds a session's grants. It says how much to ask for, carves extents, and returns
/// unused grants. When the pool is full, it says how long to wait.
///
/// Threads: any, with the engine's lock held.
class SpaceKeeper {
 public:
  using Waiting = std::deque<OutChunkPtr>;  ///< chunks without extents, in order of arrival

  explicit SpaceKeeper(SessionCore& core) : core_(core) {}

  // ---- extents
  /// Returns true while the chunk waits for space for all its places. The wait ends with one answer
  /// of the manager, or after kPlacesWait.
  bool waits_for_places(const OutChunk& chunk) STDCHK_REQUIRES(engine_lock);
  /// Carves the extents that the chunk lacks, as many as there is space for.
  std::vector<Extent> carve(const Chunk& chunk) STDCHK_REQUIRES(engine_lock);
  /// The grant that the extent was carved from. Without an id: its benefactor was dropped since.
  Grant grant_of(const Extent& extent) const STDCHK_REQUIRES(engine_lock) {
    return grants_.grant_of(extent).value_or(Grant{});
  }
  void give_back(const Extent& extent, std::uint64_t bytes) STDCHK_REQUIRES(engine_lock) {
    grants_.give_back(extent, bytes);
  }
  /// Does not use the benefactor of a failed write from now on.
  void avoid(BenefactorId benefactor, const Error& why) STDCHK_REQUIRES(engine_lock);
  /// Sets an extent aside to which a failed write may still go: it stays unused until a fence.
  void abandon(const Extent& extent) STDCHK_REQUIRES(engine_lock) { abandoned_.push_back(extent); }
  /// Bytes of the session's grants that no chunk uses.
  std::uint64_t unused_bytes() const STDCHK_REQUIRES(engine_lock) { return grants_.free_bytes(); }
  const std::vector<Extent>& abandoned() const STDCHK_REQUIRES(engine_lock) { return abandoned_; }
  void forget_abandoned() STDCHK_REQUIRES(engine_lock) { abandoned_.clear(); }
  void benefactor_gone(BenefactorId benefactor) STDCHK_REQUIRES(engine_lock);

  // ---- requests
  /// True when a request for space may be made now.
  bool may_ask() const STDCHK_REQUIRES(engine_lock) {
    return !want_in_flight_ && core_.now() >= not_before_;
  }
  bool asking() const STDCHK_REQUIRES(engine_lock) { return want_in_flight_; }
  /// The bytes to ask for; 0 when there is enough space. `batch_bytes`: the space for chunks that
  /// the request looks up; 0: it looks up none. `commits`: the session needs no space ahead.
  std::uint64_t wanted_bytes(const Waiting& waiting, std::uint64_t batch_bytes, bool commits) const
      STDCHK_REQUIRES(engine_lock);
  /// Fills in the fields of a request that ask for space.
  void fill(msg::Place& place, const Waiting& waiting, std::uint64_t want)
      STDCHK_REQUIRES(engine_lock);
  void answered(std::uint64_t want) STDCHK_REQUIRES(engine_lock);
  /// Adds grants that answer a request of `want` bytes. Returns their bytes.
  std::uint64_t add(const std::vector<Grant>& grants, std::uint64_t want)
      STDCHK_REQUIRES(engine_lock);
  void add(const std::vector<Grant>& grants) STDCHK_REQUIRES(engine_lock) { grants_.add(grants); }
  /// True when the first waiting chunk has a copy, or space for one, and no wait for more places is
  /// left.
  bool may_continue_with_fewer_copies(const Waiting& waiting) const STDCHK_REQUIRES(engine_lock);
  /// Handles a pool that is full, or full outside the avoided benefactors. Returns the error with
  /// which the session fails when its patience has ended.
  std::optional<Error> no_space(const rpc::Failure& failure) STDCHK_REQUIRES(engine_lock);
  /// The pool may have space now: patience starts anew.
  void renew_patience() STDCHK_REQUIRES(engine_lock) { no_space_since_ = core_.now(); }
  /// Drops grants that were unused for kIdleGrants. Returns true when a message should return them.
  bool drop_idle() STDCHK_REQUIRES(engine_lock);
  /// True after drop_idle() has dropped grants, until the session stores a chunk again.
  bool has_returned_grants() const STDCHK_REQUIRES(engine_lock) { return has_returned_grants_; }
  /// A new manager: it knows none of the grants.
  void forget() STDCHK_REQUIRES(engine_lock);
  /// A new manager has accepted the session: all links are new.
  void resumed() STDCHK_REQUIRES(engine_lock);

 private:
  static std::vector<BenefactorId> benefactors_of_first_chunk(const Waiting& waiting);
  std::uint64_t needed_bytes(const Waiting& waiting, const std::vector<BenefactorId>& beside) const
      STDCHK_REQUIRES(engine_lock);
  void drop_unused() STDCHK_REQUIRES(engine_lock);

  SessionCore& core_;
  GrantSet grants_ STDCHK_GUARDED_BY(engine_lock);
  std::set<BenefactorId> avoid_;
  std::vector<GrantId> returned_;
  std::vector<Extent> abandoned_;
  Time used_at_{};        ///< when space was last granted or carved
  Time idle_check_at_{};  ///< next check for unused grants; Time{}: none
  bool has_returned_grants_ = false;
  bool want_in_flight_ = false;
  Time short_of_places_{};        ///< since when places lack space; Time{}: they do not
  bool asks_for_places_ = false;  ///< the request under way was sent for missing places
  bool fewer_places_ = false;     ///< a request for places failed: use the places that exist
  bool shortage_ = false;
  std::uint32_t no_space_ = 0;  ///< consecutive answers without space
  Time no_space_since_{};
  Time not_before_{};
};

}  // namespace stdchk::client
