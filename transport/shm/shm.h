#pragma once

#include <memory>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/transport.h"

namespace stdchk::transport::shm {

/// Opens "shm": one-sided access between processes of one host. The kernel copies between their
/// memories (process_vm_writev(2), process_vm_readv(2)) within the call that starts a transfer. The
/// target's program takes no part. Messages go over a Unix socket.
Result<std::unique_ptr<Endpoint>> open_shm(Clock& clock);

}  // namespace stdchk::transport::shm
