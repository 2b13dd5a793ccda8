#include "benefactor/memory/move_extents.h"

#include <cstring>

#include "benefactor/memory/chunk_check.h"

namespace stdchk::benefactor {
namespace {

Status move_one(MutableByteSpan arena, const msg::MoveExtents::Move& move) {
  const ExpectedChunk from{move.from_offset, move.length, move.crc, {}};
  ExpectedChunk to = from;
  to.extent_offset = move.to_offset;
  STDCHK_ASSIGN(const ByteSpan source, find_extent(arena, from));
  STDCHK_ASSIGN(const ByteSpan destination, find_extent(arena, to));
  const std::uint64_t distance = move.from_offset > move.to_offset
                                     ? move.from_offset - move.to_offset
                                     : move.to_offset - move.from_offset;
  if (distance < source.size()) return fail(Code::kInvalidArgument, "benefactor.move_overlap");
  STDCHK_TRY(check_chunk(source, from));
  std::memcpy(arena.data() + move.to_offset, source.data(), source.size());
  return check_chunk(destination, to);
}

}  // namespace

msg::MoveExtents::Reply move_extents(MutableByteSpan arena, const msg::MoveExtents& request) {
  msg::MoveExtents::Reply reply;
  for (std::uint32_t i = 0; i < request.moves.size(); ++i) {
    if (!move_one(arena, request.moves[i])) reply.failed.push_back(i);
  }
  return reply;
}

}  // namespace stdchk::benefactor
