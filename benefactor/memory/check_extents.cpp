#include "benefactor/memory/check_extents.h"

#include "benefactor/memory/chunk_check.h"

namespace stdchk::benefactor {

msg::CheckExtents::Reply check_extents(ByteSpan arena, const msg::CheckExtents& request) {
  msg::CheckExtents::Reply reply;
  for (std::uint32_t i = 0; i < request.extents.size(); ++i) {
    const auto& from = request.extents[i];
    const ExpectedChunk expected{from.offset, from.length, from.crc, from.name};
    const auto extent = find_extent(arena, expected);
    if (!extent || !check_chunk(*extent, expected)) reply.corrupt.push_back(i);
  }
  return reply;
}

}  // namespace stdchk::benefactor
