#include "manager/state/pending_names.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/policy/image_name.h"
#include "core/policy/set_naming.h"
#include "manager/state/access_lists.h"
#include "manager/state/set_names.h"

namespace stdchk::manager {
namespace {

/// Returns true for a name with a star that the link `latest` names or has named: the name of an
/// image set in the folder. Such a name comes from a program that has opened the link, which stands
/// for a set, as a file. Its host may still know an earlier target.
bool is_set_name(const FileTable& files, const File& folder, std::string_view name) {
  if (name.find('*') == std::string_view::npos) return false;
  const Directory& names = folder.as_directory;
  const auto link = names.children.find(kLatestName);
  if (link != names.children.end()) {
    const File& latest = *files.file(link->second);
    if (latest.type == FileType::kSymlink && latest.target == name) return true;
  }
  // Whether a folder has directories that are sets does not change how it reads names of images.
  const SetNaming* const naming = SetNames(files, false).naming(folder);
  return naming != nullptr && std::ranges::any_of(names.children, [&](const auto& child) {
           return child.first != name && naming->parse(child.first) &&
                  naming->set_of(child.first) == name;
         });
}

}  // namespace

Result<const File*> PendingNames::make(FileId id, const NewName& name, ClientId viewer,
                                       std::int64_t now_ns) {
  STDCHK_ASSIGN(File * parent, files_.find_directory(name.parent));
  STDCHK_TRY(check_name(name.name));
  STDCHK_TRY(check_pending(*parent, name.name, "manager.create"));
  File& made = files_.add(id, FileType::kRegular, name.mode, name.uid, name.gid, now_ns);
  inherit_lists(*parent, made);
  add(*parent, name.name, made, viewer);
  return &made;
}

void PendingNames::make_unnamed(FileId id, const NewName& name, std::int64_t now_ns) {
  File& made = files_.add(id, FileType::kRegular, name.mode, name.uid, name.gid, now_ns);
  if (const File* const parent = files_.file(name.parent)) inherit_lists(*parent, made);
}

Status PendingNames::give_name(FileId id, FileId parent, const std::string& name, ClientId viewer) {
  File* const named = files_.find(id);
  const bool is_nameless = named != nullptr && !named->parent && !named->pending;
  if (!is_nameless || named->type != FileType::kRegular || named->newest.version > 0) {
    return fail(Code::kNotFound, "manager.link");
  }
  STDCHK_ASSIGN(File * directory, files_.check_new_name(parent, name));
  STDCHK_TRY(check_pending(*directory, name, "manager.link"));
  add(*directory, name, *named, viewer);
  return {};
}

/// Refuses a name that another file without a version has, and the name of an image set.
Status PendingNames::check_pending(const File& directory, const std::string& name,
                                   const char* where) const {
  if (directory.as_directory.pending_children.contains(name)) {
    return fail(Code::kExists, where);
  }
  if (is_set_name(files_, directory, name)) return fail(Code::kInvalidArgument, "manager.latest");
  return {};
}

void PendingNames::add(File& directory, const std::string& name, File& file, ClientId viewer) {
  file.pending = std::make_unique<PendingName>(PendingName{directory.id, name, {viewer}});
  directory.as_directory.pending_children.emplace(name, file.id);
}

void PendingNames::join(FileId id, ClientId viewer) {
  File* joined = files_.find(id);
  if (joined == nullptr || !joined->pending) return;
  auto& viewers = joined->pending->viewers;
  if (std::find(viewers.begin(), viewers.end(), viewer) == viewers.end()) viewers.push_back(viewer);
}

void PendingNames::leave(FileId id, ClientId viewer) {
  File* left = files_.find(id);
  if (left != nullptr && left->pending) std::erase(left->pending->viewers, viewer);
}

void PendingNames::drop(FileId id) {
  File* dropped = files_.find(id);
  if (dropped == nullptr || !dropped->pending) return;
  if (File* parent = files_.find(dropped->pending->parent)) {
    parent->as_directory.pending_children.erase(dropped->pending->name);
  }
  dropped->pending.reset();
}

Status PendingNames::rename(FileId id, FileId to_parent, std::string_view to_name) {
  STDCHK_TRY(check_name(to_name));
  STDCHK_ASSIGN(File * parent, files_.find_directory(to_parent));
  File* renamed = files_.find(id);
  if (renamed == nullptr || !renamed->pending) return fail(Code::kNotFound, "manager.rename");
  const auto taken = parent->as_directory.children.find(to_name);
  if (taken != parent->as_directory.children.end() &&
      files_.file(taken->second)->type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "manager.rename");
  }
  const auto other = parent->as_directory.pending_children.find(to_name);
  if (other != parent->as_directory.pending_children.end() && other->second != id) {
    drop(other->second);
  }
  PendingName next{to_parent, std::string(to_name), std::move(renamed->pending->viewers)};
  files_.find(renamed->pending->parent)
      ->as_directory.pending_children.erase(renamed->pending->name);
  *renamed->pending = std::move(next);
  parent->as_directory.pending_children[std::string(to_name)] = id;
  return {};
}

std::optional<NewName> PendingNames::new_name(FileId id) const {
  const File* of = files_.file(id);
  if (of == nullptr || !of->pending) return std::nullopt;
  return NewName{of->pending->parent,
                 of->pending->name,
                 of->mode,
                 of->uid,
                 of->gid,
                 of->atime_ns,
                 {of->xattrs.begin(), of->xattrs.end()}};
}

}  // namespace stdchk::manager
