#include "core/objects/s3_store.h"

/// Built without the headers of libcurl.
namespace stdchk {

Outcome<std::unique_ptr<ObjectStore>> S3Store::open(ObjectPlace, const Clock&,
                                                    std::function<bool()>) {
  return problem(Code::kUnsupported, "objects.curl", 0,
                 "This stdchk was built without libcurl, so it has no object stores. Install "
                 "libcurl4-openssl-dev, and build again");
}

}  // namespace stdchk
