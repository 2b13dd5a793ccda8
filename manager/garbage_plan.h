#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/messages/messages.h"
#include "manager/audit.h"
#include "manager/free_space.h"

namespace stdchk::manager {

/// Extent headers that a benefactor has reported, of one part of its arena.
struct ArenaPage {
  Range range;                          ///< of the arena, in steps of the alignment
  std::vector<msg::FoundExtent> found;  ///< ascending, all in `range`
  std::uint64_t arena_bytes = 0;        ///< in steps of the alignment
};

/// What of a page may go, what stays and why, and what is not there.
struct GarbagePlan {
  /// Their headers lie in space that is free: no map, grant, copy or quarantine refers to them.
  std::vector<msg::FoundExtent> garbage;
  std::uint64_t garbage_bytes = 0;  ///< that are free and nobody else's of `garbage`
  /// The others, by what their headers lie in. What nothing claims counts as used.
  std::array<std::uint64_t, kClaimKinds> kept{};
  /// Parts of used space in which an extent should begin where no header is. It may have been
  /// written since the report.
  std::vector<Range> missing;
  /// Where the first extent behind the page begins, when used space goes on there.
  std::optional<std::uint64_t> next_extent;
};

/// True when a benefactor that was asked for [begin, end) may answer so: ascending offsets in what
/// it says it has looked at, which is something, and no more than was asked for.
bool is_possible(const msg::ReportExtents::Reply& reply, std::uint64_t begin, std::uint64_t end);

/// Plans, and does nothing. A header is judged by where it is now, not by what it says: so it does
/// not matter what has happened since the report, as long as `claims` are those of now and
/// what may go is taken from the free space at once.
///
/// `claims` are those of that arena in ascending order, with or without those of chunks.
/// `next_extent` is that of the page before; none: it is not known, and nothing is missed before
/// the first space that is not used.
GarbagePlan plan_garbage(const ArenaPage& page, const std::vector<Claim>& claims,
                         std::optional<std::uint64_t> next_extent);

}  // namespace stdchk::manager
