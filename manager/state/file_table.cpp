#include "manager/state/file_table.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {

Status check_name(std::string_view name) {
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "manager.name");
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos) {
    return fail(Code::kInvalidArgument, "manager.name");
  }
  return {};
}

/// All users of a shared mount may make names in its root. Sticky as /tmp is, so that no user
/// renames or removes names of another user.
constexpr std::uint32_t kRootMode = 01777;

FileTable::FileTable() {
  add(kRootFile, FileType::kDirectory, kRootMode, 0, 0, 0).parent = kRootFile;
}

const File* FileTable::file(FileId id) const {
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : found->second.get();
}

File* FileTable::find(FileId id) { return const_cast<File*>(file(id)); }

Result<const File*> FileTable::directory(FileId id) const {
  const File* found = file(id);
  if (found == nullptr) return fail(Code::kNotFound, "manager.directory");
  if (found->type != FileType::kDirectory) return fail(Code::kNotDirectory, "manager.directory");
  return found;
}

Result<File*> FileTable::find_directory(FileId id) {
  STDCHK_ASSIGN(const File* found, directory(id));
  return const_cast<File*>(found);
}

Result<const File*> FileTable::lookup(FileId parent, std::string_view name, ClientId viewer) const {
  STDCHK_ASSIGN(const File* directory_file, directory(parent));
  const auto pending = directory_file->as_directory.pending_children.find(name);
  if (pending != directory_file->as_directory.pending_children.end()) {
    const File* found = file(pending->second);
    const auto& viewers = found->pending->viewers;
    if (std::find(viewers.begin(), viewers.end(), viewer) != viewers.end()) return found;
  }
  const auto child = directory_file->as_directory.children.find(name);
  if (child == directory_file->as_directory.children.end())
    return fail(Code::kNotFound, "manager.lookup");
  return file(child->second);
}

const VersionData* FileTable::version(FileId id, Version wanted) const {
  const File* found = file(id);
  if (found == nullptr) return nullptr;
  if (wanted == 0 || wanted == found->newest.version) return &found->newest;
  const auto old = found->older.find(wanted);
  return old == found->older.end() ? nullptr : &old->second;
}

Attributes FileTable::attributes(const File& file, const VersionData& version) const {
  Attributes out;
  out.id = file.id;
  out.type = file.type;
  out.mode = file.mode;
  out.uid = file.uid;
  out.gid = file.gid;
  out.link_count = file.type == FileType::kDirectory ? 2 + file.as_directory.subdirectories
                   : file.parent  ? 1 + static_cast<std::uint32_t>(file.links.size())
                   : file.pending ? 1
                                  : 0;
  out.size_bytes = file.type == FileType::kSymlink ? file.target.size() : version.size_bytes;
  out.stored_bytes = version.stored_bytes;
  out.version = version.version;
  out.atime_ns = file.atime_ns;
  out.mtime_ns = version.mtime_ns;
  out.ctime_ns = file.ctime_ns;
  out.device = file.device;
  out.has_access_list = has_access_list(file);
  out.has_default_list = has_default_list(file);
  out.has_no_xattrs = file.xattrs.empty();
  if (file.type == FileType::kRegular && version.version > 0) {
    out.copies = version.copies;
    out.naming = version.naming;
    out.drain = version.drained ? DrainState::kDrained : DrainState::kPending;
  }
  return out;
}

std::string FileTable::path(const File& file_at) const {
  std::string out;
  const File* at = &file_at;
  while (at != nullptr && at->id != kRootFile) {
    const std::string& name = at->parent ? at->name : at->pending ? at->pending->name : out;
    if (!at->parent && !at->pending) return {};
    out = out.empty() ? name : name + "/" + out;
    at = file(at->parent ? at->parent : at->pending->parent);
  }
  return out;
}

std::string FileTable::path(const Link& link) const {
  const std::string above = path(*file(link.parent));
  return above.empty() ? link.name : above + "/" + link.name;
}

bool FileTable::is_below(FileId id, FileId ancestor) const {
  for (const File* at = file(id); at != nullptr; at = file(at->parent)) {
    if (at->id == ancestor) return true;
    if (at->id == kRootFile) return false;
  }
  return false;
}

Policy FileTable::policy(const File& of) const {
  Policy out;
  for (const File* at = &of; at != nullptr;) {
    out.inherit(at->as_directory.policy);
    if (at->id == kRootFile) break;
    at = file(at->parent ? at->parent : at->pending ? at->pending->parent : FileId{});
  }
  return out;
}

bool FileTable::is_aside(FileId id, std::uint64_t number) const {
  const File* of = file(id);
  return of != nullptr && (of->newest.aside == number ||
                           std::any_of(of->older.begin(), of->older.end(), [&](const auto& older) {
                             return older.second.aside == number;
                           }));
}

Result<File*> FileTable::check_new_name(FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  STDCHK_ASSIGN(File * directory, find_directory(parent));
  if (directory->as_directory.children.count(name) > 0 ||
      directory->as_directory.pending_children.count(name) > 0) {
    return fail(Code::kExists, "manager.name");
  }
  // The directory was removed.
  if (!directory->parent) return fail(Code::kNotFound, "manager.name");
  return directory;
}

Status FileTable::check_new_id(FileId id) const {
  if (!id || file(id) != nullptr) return fail(Code::kExists, "manager.id");
  return {};
}

File& FileTable::add(FileId id, FileType type, std::uint32_t mode, std::uint32_t uid,
                     std::uint32_t gid, std::int64_t now_ns) {
  auto made = std::make_unique<File>();
  made->id = id;
  made->type = type;
  made->mode = mode & 07777;
  made->uid = uid;
  made->gid = gid;
  made->atime_ns = made->ctime_ns = made->newest.mtime_ns = now_ns;
  File& out = *made;
  files_[id] = std::move(made);
  return out;
}

void FileTable::link(File& file, File& parent, std::string_view name) {
  file.parent = parent.id;
  file.name = name;
  parent.as_directory.children.emplace(name, file.id);
  if (file.type == FileType::kDirectory) ++parent.as_directory.subdirectories;
}

void FileTable::unlink(File& file) {
  File* parent = find(file.parent);
  parent->as_directory.children.erase(file.name);
  if (file.type == FileType::kDirectory) --parent->as_directory.subdirectories;
  file.parent = {};
  file.name.clear();
}

}  // namespace stdchk::manager
