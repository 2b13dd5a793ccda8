#pragma once

#include "core/messages/messages.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// Checks chunks that should be in `arena`: header, length, CRC and, where there is one, the name.
/// Those that fail are listed in the reply.
msg::CheckExtents::Reply check_extents(ByteSpan arena, const msg::CheckExtents& request);

}  // namespace stdchk::benefactor
