#include "transport/transfer_parts.h"

#include <algorithm>

namespace stdchk::transport {

void split_transfer(std::span<const LocalPiece> pieces, std::uint64_t offset,
                    const PartLimits& limits, std::vector<TransferPart>& parts) {
  parts.clear();
  for (LocalPiece piece : pieces) {
    while (piece.length > 0) {
      const std::uint64_t remote_left = limits.remote_bytes - offset % limits.remote_bytes;
      if (parts.empty() || parts.back().bytes == limits.bytes ||
          parts.back().count == limits.pieces || remote_left == limits.remote_bytes) {
        parts.emplace_back().offset = offset;
      }
      TransferPart& part = parts.back();
      const std::size_t length =
          std::min<std::uint64_t>({piece.length, limits.bytes - part.bytes, remote_left});
      part.pieces[part.count++] = {piece.data, length, piece.region};
      part.bytes += length;
      offset += length;
      piece.data += length;
      piece.length -= length;
    }
  }
}

void cut_piece(const LocalPiece& piece, std::uint64_t region_bytes, std::vector<LocalPiece>& into) {
  LocalPiece left = piece;
  while (left.length > 0) {
    const auto at = static_cast<std::uint64_t>(left.data - piece.region->bytes().data());
    const std::size_t length =
        std::min<std::uint64_t>(left.length, region_bytes - at % region_bytes);
    into.push_back({left.data, length, left.region});
    left.data += length;
    left.length -= length;
  }
}

}  // namespace stdchk::transport
