#include "core/objects/instance_credentials.h"

/// Built without the headers of libcurl.
namespace stdchk {

Outcome<Credentials> ask_host_for_credentials() {
  return problem(Code::kUnsupported, "objects.curl", 0, "this stdchk was built without libcurl");
}

}  // namespace stdchk
