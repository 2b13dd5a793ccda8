#include "benefactor/drain/piece_check.h"

#include <algorithm>

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

bool differs_from_base(const msg::DrainPiece& piece, ByteSpan bytes) {
  const bool has_checksum =
      piece.length == piece.chunk_length && (piece.crc != 0 || piece.name.is_named());
  return has_checksum && crc32c(0, bytes) != piece.crc;
}

}  // namespace stdchk::benefactor
