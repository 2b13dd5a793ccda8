#include "manager/drain/drainable_name.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/utf8.h"
#include "core/objects/object_place.h"

namespace stdchk::manager {
namespace {

constexpr std::string_view kReserved = ".stdchk-";
/// Commands of the pool make these for a moment at the top: `restart` and `doctor`.
constexpr std::string_view kOfCommands[] = {".stdchk-restart-", ".stdchk-doctor."};

bool is_reserved(FileId parent, std::string_view name) {
  if (!name.starts_with(kReserved)) return false;
  const bool is_of_command = std::ranges::any_of(
      kOfCommands, [&](std::string_view beginning) { return name.starts_with(beginning); });
  return parent != kRootFile || !is_of_command;
}

/// S3's keys are texts. Some stores refuse other bytes, and some change them.
bool is_utf8(std::string_view name) {
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    if (length == 0) return false;
    name.remove_prefix(length);
  }
  return true;
}

}  // namespace

Status check_drainable(const Pool& pool, FileId parent, std::string_view name) {
  if (is_reserved(parent, name)) return fail(Code::kInvalidArgument, "name of the pool's own");
  const bool needs_text = pool.has_drain() && is_object_store(pool.config().pool.drain_directory);
  if (needs_text && !is_utf8(name)) {
    return fail(Code::kInvalidArgument, "name is not UTF-8, as object stores want");
  }
  if (name.size() <= drainable_name_bytes(pool, parent)) return {};
  if (name.size() > limits::kNameBytesMax) return {};  // the change itself says so
  return fail(Code::kNameTooLong, "path in the drain directory");
}

std::size_t drainable_name_bytes(const Pool& pool, FileId parent) {
  const File* const folder = pool.state().file(parent);
  if (!pool.has_drain() || folder == nullptr) return limits::kNameBytesMax;
  const std::size_t above = parent == kRootFile ? 0 : pool.state().path(*folder).size() + 1;
  const std::string& place = pool.config().pool.drain_directory;
  // A key has the prefix before the path, and a slash behind that of a folder.
  const std::size_t drain = drain_name(place).size() + 1;
  const std::size_t longest = is_object_store(place) ? kKeyBytesMax - 1 : limits::kPathBytesMax;
  if (drain + above >= longest) return 0;
  return std::min(longest - drain - above, limits::kNameBytesMax);
}

}  // namespace stdchk::manager
