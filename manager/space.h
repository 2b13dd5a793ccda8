#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/types.h"
#include "manager/free_space.h"

namespace stdchk::manager {

/// A Space knows, for every arena, what is free and what must not be granted yet (rule M3).
///
/// A range is free, granted or used (not here), or quarantined for one client: it becomes free when
/// the benefactor has answered that this client is fenced. Threads: one.
class Space {
 public:
  void add(BenefactorId benefactor, std::uint64_t arena_bytes, bool usable);
  bool knows(BenefactorId benefactor) const { return arenas_.count(benefactor) > 0; }
  /// Not usable: clients of an earlier epoch may still write there; nothing is granted.
  void set_usable(BenefactorId benefactor) { arenas_.at(benefactor).usable = true; }
  bool usable(BenefactorId benefactor) const;
  /// Taken by a chunk that a journal tells of, or by one that an earlier manager's client has
  /// stored.
  Status occupy(const Extent& extent, std::uint64_t bytes);

  std::optional<Range> take(BenefactorId benefactor, std::uint64_t want, std::uint64_t minimum);
  Status take_exactly(BenefactorId benefactor, Range range);
  /// A range that is not given out is a bug of the caller and changes nothing but the log.
  void give(BenefactorId benefactor, Range range);
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
  /// So many ranges of `each_bytes` can be taken there. O(count).
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
