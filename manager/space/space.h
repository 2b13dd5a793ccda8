#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/values/types.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

/// A Space knows, for every arena, what is free and what must not be granted yet (rule M3).
///
/// A range is free, granted or used (not recorded here), or quarantined for one client. A
/// quarantined range becomes free when the benefactor has confirmed that this client is fenced.
///
/// Threads: one.
class Space {
 public:
  void add(BenefactorId benefactor, std::uint64_t arena_bytes, bool usable);
  bool knows(BenefactorId benefactor) const { return arenas_.count(benefactor) > 0; }
  /// Allows grants there. Before that clients of an earlier epoch may still write to this arena.
  void set_usable(BenefactorId benefactor) { arenas_.at(benefactor).usable = true; }
  bool usable(BenefactorId benefactor) const;
  /// Takes the range of a chunk that the journal names, or that a client of an earlier manager has
  /// stored.
  Status occupy(const Extent& extent, std::uint64_t bytes);

  std::optional<Range> take(BenefactorId benefactor, std::uint64_t want, std::uint64_t minimum);
  Status take_exactly(BenefactorId benefactor, Range range);
  /// Frees a range. A range that is free already is the caller's bug: it is
  /// logged and changes nothing.
  void release(BenefactorId benefactor, Range range);
  void quarantine(BenefactorId benefactor, Range range, ClientId client);
  void fenced(BenefactorId benefactor, ClientId client);
  /// Benefactors with ranges quarantined for the client.
  std::vector<BenefactorId> quarantined_at(ClientId client) const;

  template <class Visit>
  void for_each_free(BenefactorId benefactor, Visit visit) const {
    const auto arena = arenas_.find(benefactor);
    if (arena == arenas_.end()) return;
    for (const auto& [offset, length] : arena->second.free.ranges()) visit(Range{offset, length});
  }
  template <class Visit>
  void for_each_quarantined(BenefactorId benefactor, Visit visit) const {
    const auto arena = arenas_.find(benefactor);
    if (arena == arenas_.end()) return;
    for (const auto& [client, ranges] : arena->second.quarantine) {
      for (const Range& range : ranges) visit(range);
    }
  }

  std::uint64_t free_bytes(BenefactorId benefactor) const;
  std::uint64_t arena_bytes(BenefactorId benefactor) const;
  std::uint64_t largest(BenefactorId benefactor) const;
  /// Returns true when `count` ranges of `each_bytes` can be taken there. O(count).
  bool fits(BenefactorId benefactor, std::uint64_t each_bytes, std::size_t count) const;

 private:
  struct Arena {
    FreeSpace free;
    bool usable = false;
    std::map<ClientId, std::vector<Range>> quarantine;
  };
  std::map<BenefactorId, Arena> arenas_;
};

}  // namespace stdchk::manager
