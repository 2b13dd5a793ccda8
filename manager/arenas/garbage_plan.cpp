#include "manager/arenas/garbage_plan.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

using Found = std::vector<msg::FoundExtent>::const_iterator;

Found found_extent(const ArenaPage& page, std::uint64_t offset) {
  return std::lower_bound(
      page.found.begin(), page.found.end(), offset,
      [](const msg::FoundExtent& each, std::uint64_t at) { return each.offset < at; });
}

/// Follows the extents of used space, which touch without a gap, and adds the gaps to `missing`.
/// `begin` is where an extent begins; `end` is where used space ends, perhaps behind the page.
/// Returns where the first extent behind the page begins.
std::uint64_t follow(const ArenaPage& page, std::uint64_t begin, std::uint64_t end,
                     std::vector<Range>& missing) {
  const std::uint64_t stop = std::min(end, page.range.end());
  std::uint64_t at = begin;
  while (at < stop) {
    const Found here = found_extent(page, at);
    if (here != page.found.end() && here->offset == at && extent_bytes(here->length) <= end - at) {
      at += extent_bytes(here->length);
      continue;
    }
    const Found next = found_extent(page, at + 1);
    const std::uint64_t to =
        next == page.found.end() ? stop : std::min<std::uint64_t>(stop, next->offset);
    missing.push_back({at, to - at});
    at = to;
  }
  return at;
}

}  // namespace

bool is_possible(const msg::ReportExtents::Reply& reply, std::uint64_t begin, std::uint64_t end) {
  if (reply.end <= begin || reply.end > end || reply.end % limits::kExtentAlignment != 0) {
    return false;
  }
  std::uint64_t at = begin;
  for (const msg::FoundExtent& each : reply.extents) {
    if (each.offset < at || each.offset >= reply.end ||
        each.offset % limits::kExtentAlignment != 0) {
      return false;
    }
    at = each.offset + limits::kExtentAlignment;
  }
  return true;
}

GarbagePlan plan_garbage(const ArenaPage& page, const std::vector<Claim>& claims,
                         std::optional<std::uint64_t> next_extent) {
  GarbagePlan plan;
  auto found = page.found.begin();
  const auto keep_until = [&](std::uint64_t end, ClaimKind kind) {
    const Found to = std::max(found, found_extent(page, end));
    plan.kept[static_cast<std::size_t>(kind)] += static_cast<std::uint64_t>(to - found);
    found = to;
  };
  // Used space begins at `used_from`. A page that begins in the middle of used space learns only
  // from the page before where an extent begins.
  std::uint64_t used_from = page.range.offset;
  std::optional<std::uint64_t> first = used_from == 0 ? used_from : next_extent;
  const auto use_until = [&](std::uint64_t end) {
    keep_until(end, ClaimKind::kUsed);
    if (end <= used_from || !first || *first < used_from || *first > end) return;
    const std::uint64_t at = follow(page, *first, end, plan.missing);
    if (end > page.range.end()) plan.next_extent = at;
  };
  for (const Claim& claim : claims) {
    const Range& range = claim.range;
    if (claim.kind == ClaimKind::kUsed || range.end() < page.range.offset) continue;
    if (range.offset >= page.range.end()) {
      use_until(range.offset);
      return plan;
    }
    use_until(range.offset);
    used_from = range.end();
    first = used_from;
    if (claim.kind != ClaimKind::kFree) {
      keep_until(range.end(), claim.kind);
      continue;
    }
    const Found to = std::max(found, found_extent(page, range.end()));
    for (; found != to; ++found) {
      // A stale extent may reach into an extent written later.
      const std::uint64_t next = found + 1 == to ? range.end() : (found + 1)->offset;
      plan.garbage.push_back(*found);
      plan.garbage_bytes += std::min(extent_bytes(found->length), next - found->offset);
    }
  }
  use_until(page.arena_bytes);
  return plan;
}

}  // namespace stdchk::manager
