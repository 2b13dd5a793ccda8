#pragma once

#include <array>
#include <vector>

#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// A Part is what one work request of a transfer moves.
struct Part {
  std::array<LocalPiece, kPiecesMax> pieces;
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;  ///< in the remote region
};

/// Cuts a transfer into parts of at most `part_bytes` (the port's max_msg_sz) and `part_pieces`
/// (the device's max_sge_rd) each, in order. Empty pieces are left out.
void split(std::span<const LocalPiece> pieces, std::uint64_t offset, std::size_t part_bytes,
           std::size_t part_pieces, std::vector<Part>& parts);

}  // namespace stdchk::transport::verbs
