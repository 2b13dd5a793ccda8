#pragma once

#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// Copies extents within `arena`, in the order of the request. Checks header, length and CRC at the
/// source before the copy, and at the destination after it. The reply lists the moves that failed;
/// their sources stay as they were. A move whose source and destination overlap always fails: after
/// a crash, or for a concurrent reader, neither would be whole. A move's destination may be an
/// earlier move's source; the manager is responsible for that order.
msg::MoveExtents::Reply move_extents(MutableByteSpan arena, const msg::MoveExtents& request);

}  // namespace stdchk::benefactor
