#pragma once

#include <memory>

#include "core/clock.h"
#include "core/result.h"
#include "transport/transport.h"

namespace stdchk::transport::shm {

/// Opens "shm": one-sided access between processes of one host. The kernel copies from one
/// process's memory to the other's (process_vm_writev(2), process_vm_readv(2)) within the starting
/// call, and asks nothing of the target; messages go over a socket of the host.
Result<std::unique_ptr<Endpoint>> open_shm(Clock& clock);

}  // namespace stdchk::transport::shm
