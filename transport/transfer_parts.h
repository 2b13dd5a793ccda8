#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/transport.h"

namespace stdchk::transport {

/// A TransferPart is the share of a transfer that one work request moves.
struct TransferPart {
  std::array<LocalPiece, kPiecesMax> pieces;
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::uint64_t offset = 0;  ///< offset in the remote region
};

/// A TransferCut holds a divided transfer. Later transfers reuse its memory.
struct TransferCut {
  std::vector<LocalPiece> pieces;  ///< none crosses a border between parts
  std::vector<TransferPart> parts;
};

/// PartLimits are the limits of one work request.
struct PartLimits {
  std::size_t bytes = 0;            ///< at most the port's max_msg_sz
  std::size_t pieces = kPiecesMax;  ///< for reads at most the device's max_sge_rd
  /// No part crosses a multiple of this at the target.
  std::uint64_t remote_bytes = ~std::uint64_t{0};
};

/// Divides a transfer into parts, in order. Leaves out empty pieces.
void split_transfer(std::span<const LocalPiece> pieces, std::uint64_t offset,
                    const PartLimits& limits, std::vector<TransferPart>& parts);

/// Divides a piece of a region that is registered in parts, so that no result crosses a multiple of
/// `region_bytes` of the region. Appends to `into`.
void cut_piece(const LocalPiece& piece, std::uint64_t region_bytes, std::vector<LocalPiece>& into);

}  // namespace stdchk::transport
