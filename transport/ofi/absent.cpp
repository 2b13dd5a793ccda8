// Replaces the transport in builds without libfabric.
#include "transport/ofi/ofi.h"

namespace stdchk::transport::ofi {

Result<std::unique_ptr<Endpoint>> open_ofi(Clock&, const std::string&, std::uint16_t) {
  return fail(Code::kUnsupported, "ofi.open: built without libfabric; use tcp or shm");
}

std::string provider_version() { return {}; }

}  // namespace stdchk::transport::ofi
