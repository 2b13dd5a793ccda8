#include "tools/drained/drained_source.h"

#include "core/objects/object_place.h"
#include "tools/drained/directory_source.h"
#include "tools/drained/object_source.h"

namespace stdchk::tools {

Outcome<std::unique_ptr<DrainedSource>> open_drained_source(const std::string& path,
                                                            const std::string& endpoint,
                                                            std::uint32_t requests) {
  if (is_object_store(path)) return open_object_source(path, endpoint, requests);
  return open_directory_source(path);
}

}  // namespace stdchk::tools
