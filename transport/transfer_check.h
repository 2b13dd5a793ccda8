#pragma once

#include <span>

#include "transport/transport.h"

namespace stdchk::transport {

/// Checks a transfer and returns the sum of the pieces' lengths. There must be 1 to kPiecesMax
/// pieces, each inside its region, with 1 to `bytes_max` bytes in total. The remote range must be
/// inside `key`.
Result<std::size_t> transfer_bytes(std::span<const LocalPiece> pieces, const RemoteKey& key,
                                   std::uint64_t offset, std::size_t bytes_max);

}  // namespace stdchk::transport
