#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// Opens "verbs" on the device that has the address `host`. A wildcard or loopback address means
/// the first device that has an address and an active port. With `port` 0, listen() takes any free
/// port. Regions are registered in parts of at most `region_part_bytes`; 0 takes a size that suits
/// the device.
///
/// Errors: kUnsupported: this build has no libibverbs, or this host no such device, or its port is
///   down.
Result<std::unique_ptr<Endpoint>> open_verbs(Clock& clock, const std::string& host,
                                             std::uint16_t port,
                                             std::uint64_t region_part_bytes = 0);

/// A Port describes one port of a verbs device, for choosing a device and for `stdchk doctor`.
struct Port {
  std::string device;  ///< such as "mlx5_0"
  unsigned number = 0;
  std::string kind;  ///< "InfiniBand", "RoCE" or "iWARP"
  bool active = false;
  std::string state;  ///< "active", "down", "init" and so on
  std::string gid;    ///< the GID that peers see; librdmacm's choice for `addresses`
  std::uint32_t mtu_bytes = 0;
  std::string firmware;  ///< firmware of the device; empty for devices in software
  std::uint64_t region_bytes_max = 0;
  std::vector<std::string> addresses;  ///< addresses of the port's interfaces that are up
};
/// Returns all ports of this host. None without access to /dev/infiniband, and in a build without
/// libibverbs.
std::vector<Port> ports();

/// Returns the file name of the library in use, such as "libibverbs.so.1.14.44.0"; empty if there
/// is none.
std::string library_version();

/// Returns kMemlock when this process cannot pin `bytes` more.
Status check_lockable(std::uint64_t bytes);

}  // namespace stdchk::transport::verbs
