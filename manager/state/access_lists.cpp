#include "manager/state/access_lists.h"

#include <optional>
#include <utility>

namespace stdchk::manager {
namespace {

/// Returns the value of the file's list of that kind; nullptr: it has none. Most files have no
/// extended attributes at all.
const std::string* value_of(const File& file, std::string_view xattr) {
  if (file.xattrs.empty()) return nullptr;
  const auto found = file.xattrs.find(std::string(xattr));
  return found == file.xattrs.end() ? nullptr : &found->second;
}

std::optional<AccessList> list_of(const File& file, std::string_view xattr) {
  const std::string* const value = value_of(file, xattr);
  if (value == nullptr) return std::nullopt;
  auto list = AccessList::parse(*value);
  // Every way into the state has checked it, but for a journal that somebody has changed.
  if (!list) return std::nullopt;
  return std::move(*list);
}

void put(File& file, std::string_view xattr, const AccessList& list) {
  file.xattrs[std::string(xattr)] = list.value();
}

}  // namespace

bool has_access_list(const File& file) { return value_of(file, kXattrAccessList) != nullptr; }

bool has_default_list(const File& directory) {
  return value_of(directory, kXattrDefaultList) != nullptr;
}

std::uint32_t mode_for_new(const File& directory, std::uint32_t mode, std::uint32_t unmasked) {
  return has_default_list(directory) ? mode | unmasked : mode;
}

void inherit_lists(const File& directory, File& made) {
  std::optional<AccessList> list = list_of(directory, kXattrDefaultList);
  if (!list) return;
  if (made.type == FileType::kDirectory) put(made, kXattrDefaultList, *list);
  made.mode = list->inherit(made.mode);
  if (!list->is_minimal()) put(made, kXattrAccessList, *list);
}

void change_mode(File& file, std::uint32_t mode) {
  file.mode = mode;
  std::optional<AccessList> list = list_of(file, kXattrAccessList);
  if (!list) return;
  list->set_mode(mode);
  put(file, kXattrAccessList, *list);
}

Status set_list(File& file, std::string_view xattr, const std::string& value) {
  STDCHK_ASSIGN(const AccessList list, AccessList::parse(value));
  const bool is_default = xattr == kXattrDefaultList;
  const bool fits =
      is_default ? file.type == FileType::kDirectory : file.type != FileType::kSymlink;
  if (!fits) return fail(Code::kInvalidArgument, "access list");
  if (!is_default) file.mode = with_permissions(file.mode, list.mode());
  if (is_default || !list.is_minimal()) {
    put(file, xattr, list);
  } else {
    file.xattrs.erase(std::string(xattr));
  }
  return {};
}

std::uint32_t mode_without_list(const File& file) {
  const std::optional<AccessList> list = list_of(file, kXattrAccessList);
  if (!list) return file.mode;
  return with_permissions(file.mode, list->mode_without_names());
}

}  // namespace stdchk::manager
