#include "manager/drain/drainable_name.h"

#include "core/base/limits.h"
#include "core/files/drain_manifest.h"

namespace stdchk::manager {

Status check_drainable(const Pool& pool, FileId parent, std::string_view name) {
  if (!pool.has_drain()) return {};
  if (is_pool_file(name) || (parent == kRootFile && name == msg::kTemporaryFolder)) {
    return fail(Code::kInvalidArgument, "name of the pool's own");
  }
  const File* const folder = pool.state().file(parent);
  if (folder == nullptr) return {};  // the change itself says so
  const std::size_t above = parent == kRootFile ? 0 : pool.state().path(*folder).size() + 1;
  const std::size_t drain = pool.config().pool.drain_directory.size() + 1;
  if (drain + above + name.size() <= limits::kPathBytesMax) return {};
  return fail(Code::kNameTooLong, "path in the drain directory");
}

}  // namespace stdchk::manager
