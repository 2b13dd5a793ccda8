#pragma once

#include <array>
#include <cstdint>
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

/// What one work request can be.
struct PartLimits {
  std::size_t bytes = 0;            ///< the port's max_msg_sz
  std::size_t pieces = kPiecesMax;  ///< the device's max_sge_rd
  std::uint64_t remote_bytes =
      ~std::uint64_t{0};  ///< no part crosses a multiple of this at the target
};

/// Cuts a transfer into parts, in order. Empty pieces are left out.
void split(std::span<const LocalPiece> pieces, std::uint64_t offset, const PartLimits& limits,
           std::vector<Part>& parts);

/// Cuts pieces of regions that are registered in parts: none crosses a multiple of `region_bytes`
/// of its region. Appends to `into`.
void cut_piece(const LocalPiece& piece, std::uint64_t region_bytes, std::vector<LocalPiece>& into);

}  // namespace stdchk::transport::verbs
