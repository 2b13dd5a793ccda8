#include "transport/verbs/split.h"

#include <algorithm>

namespace stdchk::transport::verbs {

void split(std::span<const LocalPiece> pieces, std::uint64_t offset, std::size_t part_bytes,
           std::size_t part_pieces, std::vector<Part>& parts) {
  parts.clear();
  for (LocalPiece piece : pieces) {
    while (piece.length > 0) {
      if (parts.empty() || parts.back().bytes == part_bytes || parts.back().count == part_pieces) {
        parts.emplace_back().offset = offset;
      }
      Part& part = parts.back();
      const std::size_t length = std::min(piece.length, part_bytes - part.bytes);
      part.pieces[part.count++] = {piece.data, length, piece.region};
      part.bytes += length;
      offset += length;
      piece.data += length;
      piece.length -= length;
    }
  }
}

}  // namespace stdchk::transport::verbs
