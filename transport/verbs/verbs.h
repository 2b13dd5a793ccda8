#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/result.h"
#include "transport/transport.h"

namespace stdchk::transport::verbs {

/// Opens "verbs" on the device that has the address `host`; a wildcard or loopback address means
/// the first device with an address whose port is active. `port` 0: any free one, from listen() on.
/// Regions are registered in parts of at most `region_part_bytes`, 0: of a size that suits the
/// device.
/// kUnsupported: this build has no libibverbs, or this host no such device, or its port is down.
Result<std::unique_ptr<Endpoint>> open_verbs(Clock& clock, const std::string& host,
                                             std::uint16_t port,
                                             std::uint64_t region_part_bytes = 0);

/// A Port is what is known of one port of a verbs device, for choosing and for `stdchk doctor`.
struct Port {
  std::string device;  ///< "mlx5_0"
  unsigned number = 0;
  std::string kind;  ///< "InfiniBand", "RoCE" or "iWARP"
  bool active = false;
  std::string state;  ///< "active", "down", "init", ...
  std::string gid;    ///< what peers see; of several the one that librdmacm takes for `addresses`
  std::uint32_t mtu_bytes = 0;
  std::string firmware;  ///< of the device; empty for those in software
  std::uint64_t region_bytes_max = 0;
  std::vector<std::string> addresses;  ///< of interfaces that are up and belong to it
};
/// All ports of this host. Empty: none, no access to /dev/infiniband, or a build without
/// libibverbs.
std::vector<Port> ports();

/// "libibverbs.so.1.14.44.0", the file of the library in use. Empty: none.
std::string library_version();

/// kMemlock when `bytes` more cannot be pinned by this process.
Status check_lockable(std::uint64_t bytes);

}  // namespace stdchk::transport::verbs
