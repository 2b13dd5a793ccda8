#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/types.h"

namespace stdchk::client {

/// A GrantSet carves extents out of a session's grants, round robin over the benefactors. Several
/// places of a chunk come from grants that go together (Grant::first), in different domains.
///
/// Threads: one at a time (the engine's lock).
class GrantSet {
 public:
  void add(const std::vector<Grant>& grants);
  /// An extent of `bytes` (extent_bytes() of a chunk) on a benefactor that is not in `avoid`.
  std::optional<Extent> carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid);
  /// Up to `count` more places of a chunk that is in `held` already. At least one, where carve() of
  /// one extent finds any, when it is nowhere yet.
  std::vector<Extent> carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                            std::size_t count, const std::vector<Extent>& held);
  /// An extent of this session that no committed map names and no write is under way to: it may be
  /// carved again. Joins with what is free around it.
  void give_back(const Extent& extent, std::uint64_t bytes);
  /// Takes out all space on a benefactor; the ids of grants of which nothing had been carved.
  std::vector<GrantId> drop(BenefactorId benefactor);
  /// Takes out the grants of which nothing had been carved; their ids.
  std::vector<GrantId> drop_untouched();

  /// Of all grants but those that were dropped before anything was carved of them: what a session
  /// asks for next grows with that.
  std::uint64_t granted_bytes() const { return granted_bytes_; }
  /// Not carved; parts smaller than a chunk included.
  std::uint64_t free_bytes() const { return free_bytes_; }
  /// How many extents of `bytes` can be carved outside `avoid`, counted up to `enough`.
  std::uint64_t room_for(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                         std::uint64_t enough) const;
  /// True when carve() finds all of them.
  bool has_places(std::uint64_t bytes, const std::set<BenefactorId>& avoid, std::size_t count,
                  const std::vector<Extent>& held) const;

 private:
  struct Free {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    GrantId grant;  ///< ranges of different grants are not joined: an extent lies within one
  };
  struct Held {
    Grant grant;
    bool touched = false;
  };
  struct Target {
    BenefactorId benefactor;
    BenefactorId first;      ///< itself when its grants go with no others
    std::vector<Free> free;  ///< sorted by offset
    std::vector<Held> grants;
  };
  struct Places {
    std::vector<std::size_t> targets;
    std::size_t next = 0;  ///< behind the one that the search ended with
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
  std::map<BenefactorId, std::uint64_t> domains_;  ///< also of those that were dropped
  std::size_t next_ = 0;
  std::uint64_t granted_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace stdchk::client
