#include "benefactor/drain/piece_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "benefactor/memory/chunk_check.h"
#include "core/base/limits.h"
#include "core/chunk/naming.h"

namespace stdchk::benefactor {
namespace {

bool is_valid(const msg::DrainPiece& piece) {
  return piece.length > 0 && piece.chunk_length <= limits::kChunkBytesMax &&
         piece.chunk_offset <= piece.chunk_length &&
         piece.length <= piece.chunk_length - piece.chunk_offset &&
         piece.file_offset <= limits::kFileBytesMax;
}

}  // namespace

bool is_in_limits(const msg::DrainPieces& request) {
  return request.file && request.pieces.size() <= limits::kMapPageSlicesMax &&
         std::ranges::all_of(request.pieces, is_valid);
}

std::size_t buffer_bytes(const msg::DrainPieces& request) {
  std::uint32_t largest = 0;
  for (const auto& piece : request.pieces) largest = std::max(largest, piece.chunk_length);
  return limits::kExtentHeaderBytes + largest;
}

Outcome<ByteSpan> load_from_arena(ByteSpan arena, const msg::DrainPieces& request,
                                  std::uint32_t index, MutableByteSpan buffer) {
  const msg::DrainPiece& piece = request.pieces[index];
  const ExpectedChunk expected{piece.extent_offset, piece.chunk_length, piece.crc, piece.name};
  const auto extent = find_extent(arena, expected);
  if (!extent) {
    return problem(Code::kInvalidArgument, "benefactor.drain", EINVAL,
                   fmt::format("Piece {} does not lie in the arena.", index));
  }
  const auto copy = buffer.first(extent->size());
  std::ranges::copy(*extent, copy.begin());
  if (!check_chunk(copy, expected)) return ByteSpan{};
  return ByteSpan(copy.subspan(limits::kExtentHeaderBytes + piece.chunk_offset, piece.length));
}

bool differs_from_base(const msg::DrainPiece& piece, ByteSpan bytes) {
  const bool has_checksum =
      piece.length == piece.chunk_length && (piece.crc != 0 || piece.name.is_named());
  return has_checksum && crc32c(0, bytes) != piece.crc;
}

}  // namespace stdchk::benefactor
