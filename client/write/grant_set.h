#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/values/types.h"

namespace stdchk::client {

/// A GrantSet carves extents out of a session's grants, round robin over the benefactors. Several
/// places of one chunk come from grants that go together (Grant::first), in different failure
/// domains.
///
/// Threads: one at a time (the engine's lock).
class GrantSet {
 public:
  void add(const std::vector<Grant>& grants);
  /// Carves an extent of `bytes` (extent_bytes() of a chunk) on a benefactor that is not in
  /// `avoid`.
  std::optional<Extent> carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid);
  /// Carves up to `count` more places of a chunk that already has the places `held`. If `held` is
  /// empty, returns at least one place whenever the other carve() finds one.
  std::vector<Extent> carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                            std::size_t count, const std::vector<Extent>& held);
  /// Returns the grant of the extent, or nothing if its benefactor was dropped meanwhile.
  std::optional<Grant> grant_of(const Extent& extent) const;
  /// Makes an extent free again, so that carve() can reuse its space. No committed map may name the
  /// extent, and no write to it may be under way.
  void give_back(const Extent& extent, std::uint64_t bytes);
  /// Drops all space on a benefactor. Returns the ids of the grants from which nothing was carved.
  std::vector<GrantId> drop(BenefactorId benefactor);
  /// Drops the grants from which nothing was carved. Returns their ids.
  std::vector<GrantId> drop_unused();

  /// Bytes of all grants, without those that were dropped unused. A session's next request grows
  /// with this number.
  std::uint64_t granted_bytes() const { return granted_bytes_; }
  /// Bytes that are not carved; includes parts that are too small for a chunk.
  std::uint64_t free_bytes() const { return free_bytes_; }
  /// Counts the extents of `bytes` that can be carved outside `avoid`, up to `enough`.
  std::uint64_t room_for(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                         std::uint64_t enough) const;
  /// True when carve() would find all `count` places.
  bool has_places(std::uint64_t bytes, const std::set<BenefactorId>& avoid, std::size_t count,
                  const std::vector<Extent>& held) const;

 private:
  struct Free {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    /// An extent lies within one grant, so ranges of different grants are not joined.
    GrantId grant;
  };
  struct Held {
    Grant grant;
    bool used = false;
  };
  struct Target {
    BenefactorId benefactor;
    BenefactorId first;      ///< equal to `benefactor` when its grants go with no others
    std::vector<Free> free;  ///< sorted by offset
    std::vector<Held> grants;
  };
  struct Places {
    std::vector<std::size_t> targets;
    std::size_t next = 0;  ///< where the next search begins
  };
  Target& target(const Grant& grant);
  static void insert(Target& target, Free free);
  bool fits(const Target& target, std::uint64_t bytes, const std::set<BenefactorId>& avoid) const;
  Places find(std::uint64_t bytes, const std::set<BenefactorId>& avoid, std::size_t count,
              const std::vector<Extent>& held) const;
  std::vector<std::size_t> find_beside(BenefactorId first, std::uint64_t bytes,
                                       const std::set<BenefactorId>& avoid, std::size_t count,
                                       const std::vector<Extent>& held) const;
  Extent take(Target& target, std::uint64_t bytes);

  std::vector<Target> targets_;
  std::map<BenefactorId, std::uint64_t> domains_;  ///< by benefactor; includes dropped ones
  std::size_t next_ = 0;
  std::uint64_t granted_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace stdchk::client
