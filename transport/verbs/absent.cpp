// Replaces the transport in builds without libibverbs or librdmacm.
#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {

Result<std::unique_ptr<Endpoint>> open_verbs(Clock&, const std::string&, std::uint16_t,
                                             std::uint64_t) {
  return fail(Code::kUnsupported,
              "verbs.open: built without libibverbs-dev and librdmacm-dev; install them and build");
}

std::vector<Port> ports() { return {}; }

std::string library_version() { return {}; }

}  // namespace stdchk::transport::verbs
