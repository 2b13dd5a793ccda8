#pragma once

#include "core/base/problem.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// Returns true when a request names a file and its pieces are within the limits. Requests come from
/// the wire and are not trusted.
bool is_in_limits(const msg::DrainPieces& request);
/// Returns the size of a buffer for load_from_arena(), for each piece of the request.
std::size_t buffer_bytes(const msg::DrainPieces& request);
/// Copies the chunk of piece `index` from the arena to `buffer`, and checks the copy. Returns the
/// piece's bytes, which are a part of `buffer`; none when the chunk is corrupt. No later step may
/// read the arena: others may free and overwrite the chunk at any time.
/// Errors: kInvalidArgument when the chunk does not lie in the arena.
Outcome<ByteSpan> load_from_arena(ByteSpan arena, const msg::DrainPieces& request,
                                  std::uint32_t index, MutableByteSpan buffer);
/// Returns true when `bytes` of the file at `base_path` cannot be the piece. A part of a chunk has no
/// checksum: the drain of its file has verified the whole chunk. Files that a pool found in its
/// drain directory have no checksums.
bool differs_from_base(const msg::DrainPiece& piece, ByteSpan bytes);

}  // namespace stdchk::benefactor
