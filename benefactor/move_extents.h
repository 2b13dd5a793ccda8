#pragma once

#include "core/messages/messages.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// Copies extents within `arena` in the order of the request and checks each: header, length and
/// CRC at the source before, at the destination after. A move that fails leaves its source as it
/// was and is listed in the reply; one whose source and destination overlap always fails, because a
/// crash or a reader in between would see neither. A move's destination may be the source of an
/// earlier one: that order is the manager's duty.
msg::MoveExtents::Reply move_extents(MutableByteSpan arena, const msg::MoveExtents& request);

}  // namespace stdchk::benefactor
