#pragma once

#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// Checks chunks that should be in `arena`: header, length, CRC and, if given, the name. The reply
/// lists those that fail.
msg::CheckExtents::Reply check_extents(ByteSpan arena, const msg::CheckExtents& request);

}  // namespace stdchk::benefactor
