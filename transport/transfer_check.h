#pragma once

#include <span>

#include "transport/transport.h"

namespace stdchk::transport {

/// The sum of the pieces' lengths, when they are one or two, each inside its region, not empty
/// together, at most `bytes_max`, and the remote range is inside `key`.
Result<std::size_t> transfer_bytes(std::span<const LocalPiece> pieces, const RemoteKey& key,
                                   std::uint64_t offset, std::size_t bytes_max);

}  // namespace stdchk::transport
