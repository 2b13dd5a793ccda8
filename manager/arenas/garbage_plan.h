#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/messages/messages.h"
#include "manager/arenas/claims.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

/// The extent headers that a benefactor has reported from one part of its arena.
struct ArenaPage {
  /// The part of the arena, in multiples of limits::kExtentAlignment.
  Range range;
  std::vector<msg::FoundExtent> found;  ///< ascending, all in `range`
  /// The size of the whole arena, a multiple of limits::kExtentAlignment.
  std::uint64_t arena_bytes = 0;
};

/// The result of judging one page: extents to forget, extents to keep, and gaps
/// where extents are missing.
struct GarbagePlan {
  /// Headers in free space: no map, grant, copy or quarantine refers to them.
  std::vector<msg::FoundExtent> garbage;
  /// Free bytes that `garbage` covers; bytes of overlapping extents count once.
  std::uint64_t garbage_bytes = 0;
  /// The number of other headers, by the claim on the space they lie in.
  /// Unclaimed space counts as used.
  std::array<std::uint64_t, kClaimKinds> kept{};
  /// Parts of used space where an extent should begin but no header was reported. Clients may have
  /// written headers there after the report.
  std::vector<Range> missing;
  /// The offset of the first extent behind the page, when used space continues there.
  std::optional<std::uint64_t> next_extent;
};

/// Returns true when `reply` is a valid answer to a request for [begin, end). Its offsets must
/// ascend and lie in the range it claims to cover, which is not empty and within [begin, end).
bool is_possible(const msg::ReportExtents::Reply& reply, std::uint64_t begin, std::uint64_t end);

/// Plans only; changes nothing. Each header is judged by its present place, not by its content, so
/// changes since the report do no harm. The caller must pass the present claims, and take `garbage`
/// from the free space at once.
///
/// `claims` are those of this arena in ascending order; claims by chunks may be left out.
/// `next_extent` is the value from the page before. If it is empty, gaps before the first range
/// that is not used go unreported.
GarbagePlan plan_garbage(const ArenaPage& page, const std::vector<Claim>& claims,
                         std::optional<std::uint64_t> next_extent);

}  // namespace stdchk::manager
