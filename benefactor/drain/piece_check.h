#pragma once

#include "core/messages/messages.h"

namespace stdchk::benefactor {

/// Returns true when a request names a file and its pieces are within the limits. Requests come from
/// the wire and are not trusted.
bool is_in_limits(const msg::DrainPieces& request);
/// Returns true when `bytes` of the file at `base_path` cannot be the piece. A part of a chunk has no
/// checksum: the drain of its file has verified the whole chunk. Files that a pool found in its
/// drain directory have no checksums.
bool differs_from_base(const msg::DrainPiece& piece, ByteSpan bytes);

}  // namespace stdchk::benefactor
