#include "benefactor/memory/extent_report.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"

namespace stdchk::benefactor {
namespace {

constexpr std::uint64_t kStep = limits::kExtentAlignment;
using HeaderBytes = std::array<std::byte, limits::kExtentHeaderBytes>;

/// Copies the header, because others change the arena at any time without a lock. That is no error
/// here: a torn header fails its CRC.
__attribute__((no_sanitize("thread"))) HeaderBytes copy_header(const std::byte* at) {
  HeaderBytes out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = at[i];
  return out;
}

/// Most places of an arena have no header: the first bytes tell, without a copy.
__attribute__((no_sanitize("thread"))) bool begins_like_header(const std::byte* at) {
  std::uint32_t first = 0;
  for (std::size_t i = sizeof(first); i-- > 0;) {
    first = first << 8 | std::to_integer<std::uint32_t>(at[i]);
  }
  return first == kExtentHeaderMagic;
}

/// Returns true, and fills `found`, when there is a valid header at that place.
bool find_header(ByteSpan arena, std::uint64_t offset, msg::FoundExtent& found) {
  if (!begins_like_header(arena.data() + offset)) return false;
  const HeaderBytes bytes = copy_header(arena.data() + offset);
  const auto header = decode_extent_header(bytes);
  if (!header) return false;
  found = {offset, header->length, crc32c(0, bytes)};
  return true;
}

bool holds_header(ByteSpan arena, std::uint64_t offset) {
  return offset % kStep == 0 && offset < arena.size() &&
         arena.size() - offset >= limits::kExtentHeaderBytes;
}

}  // namespace

msg::ReportExtents::Reply report_extents(ByteSpan arena, const msg::ReportExtents& request) {
  msg::ReportExtents::Reply reply;
  std::uint64_t at = std::min<std::uint64_t>(request.begin, arena.size());
  at = (at + kStep - 1) / kStep * kStep;
  const std::uint64_t end =
      std::min({request.end, std::uint64_t{arena.size()}, at + kReportBytesMax});
  for (; at < end && holds_header(arena, at); at += kStep) {
    msg::FoundExtent found;
    if (!find_header(arena, at, found)) continue;
    if (reply.extents.size() == limits::kListItemsMax) break;
    reply.extents.push_back(found);
  }
  reply.end = std::max(request.begin, at);
  return reply;
}

void Forgetter::lose_link() {
  const MutexLock lock(mutex_);
  ++link_;
}

Result<msg::ForgetExtents::Reply> Forgetter::forget(const msg::ForgetExtents& request,
                                                    std::uint64_t link) {
  const MutexLock lock(mutex_);
  if (link != link_) return fail(Code::kStale, "benefactor.forget");
  msg::ForgetExtents::Reply reply;
  for (const msg::FoundExtent& wanted : request.extents) {
    msg::FoundExtent found;
    if (!holds_header(arena_, wanted.offset) || !find_header(arena_, wanted.offset, found) ||
        found != wanted) {
      continue;
    }
    std::memset(arena_.data() + wanted.offset, 0, limits::kExtentHeaderBytes);
    ++reply.forgotten;
  }
  return reply;
}

}  // namespace stdchk::benefactor
