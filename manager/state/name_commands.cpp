#include "manager/state/name_commands.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "core/policy/image_name.h"
#include "manager/state/access_lists.h"
#include "manager/state/pending_names.h"

namespace stdchk::manager {
namespace {

/// Limit for all extended attributes of a file: one attribute may have the kernel's maximum, and
/// all attributes together fit in one message.
constexpr std::size_t kXattrsBytesMax = 2 * limits::kXattrBytesMax;
static_assert(kXattrsBytesMax + limits::kXattrBytesMax < limits::kMessageBytesMax);

/// Checks that a rename may replace `to` with `from`.
Status check_replace(const File& from, const File& to) {
  if (to.type == FileType::kDirectory) {
    if (from.type != FileType::kDirectory) return fail(Code::kIsDirectory, "manager.rename");
    if (!to.as_directory.children.empty() || !to.as_directory.pending_children.empty()) {
      return fail(Code::kNotEmpty, "manager.rename");
    }
  } else if (from.type == FileType::kDirectory) {
    return fail(Code::kNotDirectory, "manager.rename");
  }
  return {};
}

}  // namespace

Result<Affected> NameCommands::run(const AddDirectory& command) {
  STDCHK_TRY(files_.check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, files_.check_new_name(command.parent, command.name));
  File& made = files_.add(command.id, FileType::kDirectory, command.mode, command.uid, command.gid,
                          command.now_ns);
  inherit_lists(*parent, made);
  catalog_.link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.mirror) {
    made.in_drain = true;
    catalog_.mirror.add(msg::MirrorKind::kMakeDirectory, made, files_.path(made));
  }
  return Affected{made.id, {}};
}

Result<Affected> NameCommands::run(const AddSymlink& command) {
  if (command.target.empty() || command.target.size() > limits::kSymlinkBytesMax) {
    return fail(Code::kInvalidArgument, "manager.symlink");
  }
  STDCHK_TRY(files_.check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, files_.check_new_name(command.parent, command.name));
  File& made =
      files_.add(command.id, FileType::kSymlink, 0777, command.uid, command.gid, command.now_ns);
  made.target = command.target;
  catalog_.link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.held) {
    catalog_.hold(made);
  } else if (command.mirror) {
    made.in_drain = true;
    catalog_.mirror.add(msg::MirrorKind::kSymlink, made, files_.path(made), made.target);
  }
  return Affected{made.id, {}};
}

Result<Affected> NameCommands::run(const RemoveName& command) {
  STDCHK_ASSIGN(File * parent, files_.find_directory(command.parent));
  const auto child = parent->as_directory.children.find(command.name);
  if (child == parent->as_directory.children.end()) return fail(Code::kNotFound, "manager.remove");
  File& removed = *files_.find(child->second);
  if (command.directory) {
    if (removed.type != FileType::kDirectory) return fail(Code::kNotDirectory, "manager.rmdir");
    if (!removed.as_directory.children.empty() || !removed.as_directory.pending_children.empty()) {
      return fail(Code::kNotEmpty, "manager.rmdir");
    }
  } else if (removed.type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "manager.unlink");
  }
  const FileId id = removed.id;
  if (removed.parent != parent->id || removed.name != command.name) {
    links_.remove(removed, *parent, command.name, command.mirror);
    removed.ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
    return Affected{id, {}};
  }
  if (command.mirror && (removed.in_drain || removed.stale_in_drain)) {
    catalog_.leave_drained(*parent, command.name, kAfterAllCommits);
    links_.mirror_lost_name(removed);
  }
  catalog_.note_loss(removed);
  catalog_.unlink(removed);
  links_.give_next_name(removed);
  if (command.directory) catalog_.generations.forget(id);
  removed.ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  catalog_.erase_if_unused(removed);
  return Affected{id, {}};
}

Result<Affected> NameCommands::run(const RenameName& command) {
  STDCHK_TRY(check_name(command.to_name));
  STDCHK_ASSIGN(File * from_parent, files_.find_directory(command.from_parent));
  STDCHK_ASSIGN(File * to_parent, files_.find_directory(command.to_parent));
  const auto source = from_parent->as_directory.children.find(command.from_name);
  if (source == from_parent->as_directory.children.end())
    return fail(Code::kNotFound, "manager.rename");
  File& moved = *files_.find(source->second);
  if (moved.type == FileType::kDirectory && files_.is_below(to_parent->id, moved.id)) {
    return fail(Code::kCrossesDirectory, "manager.rename");
  }
  if (!to_parent->parent) return fail(Code::kNotFound, "manager.rename");
  const auto target = to_parent->as_directory.children.find(command.to_name);
  File* replaced =
      target == to_parent->as_directory.children.end() ? nullptr : files_.find(target->second);
  if (command.exchange) {
    if (replaced == nullptr) return fail(Code::kNotFound, "manager.exchange");
    return exchange(moved, *replaced, command);
  }
  if (replaced != nullptr) {
    if (command.no_replace) return fail(Code::kExists, "manager.rename");
    if (replaced == &moved) return Affected{moved.id, {}};
    STDCHK_TRY(check_replace(moved, *replaced));
    links_.make_first(*replaced, to_parent->id, command.to_name);
  }
  links_.make_first(moved, from_parent->id, command.from_name);
  // A pending file of that name loses its name, as any file does on a rename over it.
  const auto pending = to_parent->as_directory.pending_children.find(command.to_name);
  if (pending != to_parent->as_directory.pending_children.end())
    PendingNames(files_).drop(pending->second);

  if (command.mirror && (moved.in_drain || moved.stale_in_drain)) {
    catalog_.leave_drained(*from_parent, command.from_name, kAfterAllCommits);
    catalog_.leave_drained(*to_parent, command.to_name, kAfterAllCommits);
  }
  const std::string old_path = files_.path(moved);
  const FileId replaced_id = replaced == nullptr ? FileId{} : replaced->id;
  const std::uint64_t replaced_content = replaced == nullptr ? 0 : replaced->newest.content();
  if (replaced != nullptr) {
    if (command.mirror) links_.keep_for_next_name(*replaced);
    catalog_.unlink(*replaced);
    catalog_.generations.forget(replaced->id);
    replaced->ctime_ns = command.now_ns;
  }
  catalog_.note_loss(moved);
  const SetNaming* const read_before = catalog_.names().naming(*from_parent);
  catalog_.unlink(moved);
  if (command.counts) count_pointer(moved, *to_parent, command.to_name);
  catalog_.link_again(moved, *to_parent, command.to_name, to_parent != from_parent,
                      replaced_content);
  if (moved.type == FileType::kDirectory) catalog_.read_moved_names(moved, read_before);
  if (command.held) withhold_moved(moved, old_path);
  if (command.mirror) mirror_rename(moved, old_path, files_.path(moved), replaced);
  moved.ctime_ns = from_parent->newest.mtime_ns = from_parent->ctime_ns = command.now_ns;
  to_parent->newest.mtime_ns = to_parent->ctime_ns = command.now_ns;
  if (replaced != nullptr) {
    links_.give_next_name(*replaced);
    catalog_.erase_if_unused(*replaced);
  }
  return Affected{moved.id, replaced_id};
}

Result<Affected> NameCommands::exchange(File& from, File& to, const RenameName& command) {
  File* from_parent = files_.find(command.from_parent);
  File* to_parent = files_.find(command.to_parent);
  if (to.type == FileType::kDirectory && files_.is_below(from_parent->id, to.id)) {
    return fail(Code::kCrossesDirectory, "manager.exchange");
  }
  if (&from == &to) return Affected{from.id, {}};
  links_.make_first(from, from_parent->id, command.from_name);
  links_.make_first(to, to_parent->id, command.to_name);
  if (command.mirror) {
    catalog_.leave_drained(*from_parent, command.from_name, kAfterAllCommits);
    catalog_.leave_drained(*to_parent, command.to_name, kAfterAllCommits);
  }
  const std::string from_path = files_.path(from);
  const std::string to_path = files_.path(to);
  const std::uint64_t from_content = from.newest.content();
  const std::uint64_t to_content = to.newest.content();
  const bool elsewhere = from_parent != to_parent;
  const SetNaming* const from_names = catalog_.names().naming(*from_parent);
  const SetNaming* const to_names = catalog_.names().naming(*to_parent);
  const bool directory = from.type == FileType::kDirectory || to.type == FileType::kDirectory;
  if (command.held && !directory) withhold_exchanged(from, to, command);
  catalog_.unlink(from);
  catalog_.unlink(to);
  if (command.counts) {
    count_pointer(from, *to_parent, command.to_name);
    count_pointer(to, *from_parent, command.from_name);
  }
  catalog_.link_again(from, *to_parent, command.to_name, elsewhere, to_content);
  catalog_.link_again(to, *from_parent, command.from_name, elsewhere, from_content);
  if (from.type == FileType::kDirectory) catalog_.read_moved_names(from, from_names);
  if (to.type == FileType::kDirectory) catalog_.read_moved_names(to, to_names);
  if (command.held && directory) {
    withhold_moved(from, from_path);
    withhold_moved(to, to_path);
  }
  if (command.mirror && !(command.held && !directory)) {
    mirror_exchange(from, from_path, to, to_path);
  }
  from.ctime_ns = to.ctime_ns = command.now_ns;
  from_parent->newest.mtime_ns = from_parent->ctime_ns = command.now_ns;
  to_parent->newest.mtime_ns = to_parent->ctime_ns = command.now_ns;
  return Affected{from.id, to.id};
}

/// A pointer names the sets that were begun before it got its name. Called while the file has no
/// name.
void NameCommands::count_pointer(File& file, const File& parent, std::string_view name) {
  if (file.type != FileType::kRegular || file.newest.version == 0) return;
  if (catalog_.names().part(parent, name) != SetPart::kPointer) return;
  file.newest.sequence = ++catalog_.sequence;
}

/// Called after the rename of `moved` from the path `from`, and before the drain directory gets it.
/// Withholds the file, or the markers and pointers in the directory.
void NameCommands::withhold_moved(File& moved, const std::string& from) {
  if (moved.type != FileType::kDirectory) return catalog_.withhold(moved, from);
  const std::size_t above = files_.path(moved).size();
  std::vector<File*> todo{&moved};
  while (!todo.empty()) {
    const File& folder = *todo.back();
    todo.pop_back();
    for (const auto& [name, id] : folder.as_directory.children) {
      File& child = *files_.find(id);
      if (child.type == FileType::kDirectory) {
        todo.push_back(&child);
      } else if (child.parent == folder.id && child.name == name &&
                 catalog_.names().part(folder, name) != SetPart::kNone) {
        catalog_.withhold(child, from + files_.path(child).substr(above));
      }
    }
  }
}

/// Called before the two files exchange their names. The drain directory keeps the file that was a
/// marker or pointer until the other file is drained under this name.
void NameCommands::withhold_exchanged(File& from, File& to, const RenameName& command) {
  const File& from_parent = *files_.find(command.from_parent);
  const File& to_parent = *files_.find(command.to_parent);
  const bool from_gains = catalog_.names().part(to_parent, command.to_name) != SetPart::kNone;
  const bool to_gains = catalog_.names().part(from_parent, command.from_name) != SetPart::kNone;
  const bool from_there = from.in_drain || from.stale_in_drain;
  const bool to_there = to.in_drain || to.stale_in_drain;
  from_gains ? catalog_.withhold(from, files_.path(from)) : catalog_.leave_stale(from);
  to_gains ? catalog_.withhold(to, files_.path(to)) : catalog_.leave_stale(to);
  from.stale_in_drain = to_there && !to_gains;
  to.stale_in_drain = from_there && !from_gains;
}

/// A renamed file that was never drained leaves the file that it replaces in the drain directory.
/// Its own drain replaces that file, so the parallel file system always has one of the two.
void NameCommands::mirror_rename(File& file, const std::string& from, const std::string& to,
                                 const File* replaced) {
  const bool covers = replaced != nullptr && (replaced->in_drain || replaced->stale_in_drain);
  if (file.in_drain) {
    catalog_.mirror.add(msg::MirrorKind::kRename, file, from, to);
    file.stale_in_drain = false;
    return;
  }
  if (file.stale_in_drain) catalog_.mirror.add(msg::MirrorKind::kUnlink, file, from);
  file.stale_in_drain = covers;
}

void NameCommands::mirror_exchange(File& a, const std::string& path_a, File& b,
                                   const std::string& path_b) {
  if (a.in_drain && b.in_drain) {
    // Uses three renames: each may be repeated safely, but one exchange may not.
    const std::uint64_t last = catalog_.mirror.newest() + 3;
    catalog_.mirror.add(msg::MirrorKind::kRename, a, path_a).number = last;
    catalog_.mirror.add(msg::MirrorKind::kRename, b, path_b, path_a);
    catalog_.mirror.add(msg::MirrorKind::kRename, a, {}, path_b);
  } else if (a.in_drain) {
    catalog_.mirror.add(msg::MirrorKind::kRename, a, path_a, path_b);
  } else if (b.in_drain) {
    catalog_.mirror.add(msg::MirrorKind::kRename, b, path_b, path_a);
  } else {
    if (a.stale_in_drain) catalog_.mirror.add(msg::MirrorKind::kUnlink, a, path_a);
    if (b.stale_in_drain) catalog_.mirror.add(msg::MirrorKind::kUnlink, b, path_b);
  }
  a.stale_in_drain = b.stale_in_drain = false;
}

Result<Affected> NameCommands::run(const ChangeAttributes& command) {
  const msg::SetAttributes& change = command.change;
  File* changed = files_.find(change.file);
  if (changed == nullptr) return fail(Code::kNotFound, "manager.setattr");
  const auto has = [&](msg::SetMask bit) {
    return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
  };
  const std::uint32_t uid_before = changed->uid;
  if (has(msg::SetMask::kMode)) change_mode(*changed, change.mode & 07777);
  if (has(msg::SetMask::kUid)) changed->uid = change.uid;
  if (has(msg::SetMask::kGid)) changed->gid = change.gid;
  if (has(msg::SetMask::kAtime)) changed->atime_ns = change.atime_ns;
  if (has(msg::SetMask::kMtime)) changed->newest.mtime_ns = change.mtime_ns;
  changed->ctime_ns = command.now_ns;
  const bool shows = (change.mask & ~static_cast<std::uint32_t>(msg::SetMask::kAtime)) != 0;
  if (command.mirror && shows && changed->in_drain && changed->parent && changed->id != kRootFile) {
    catalog_.mirror.add(msg::MirrorKind::kAttributes, *changed, files_.path(*changed)).uid_before =
        uid_before;
  }
  return Affected{changed->id, {}};
}

Result<Affected> NameCommands::run(const ChangeXattr& command) {
  const msg::SetXattr& change = command.change;
  File* changed = files_.find(change.file);
  if (changed == nullptr) return fail(Code::kNotFound, "manager.setxattr");
  if (change.name.empty() || change.name.size() > limits::kNameBytesMax) {
    return fail(Code::kInvalidArgument, "manager.setxattr");
  }
  const auto found = changed->xattrs.find(change.name);
  const bool exists = found != changed->xattrs.end();
  if (change.remove) {
    if (!exists) return fail(Code::kNoAttribute, "manager.removexattr");
    changed->xattrs.erase(found);
  } else {
    if (exists && change.mode == msg::XattrMode::kCreate) {
      return fail(Code::kExists, "manager.setxattr");
    }
    if (!exists && change.mode == msg::XattrMode::kReplace) {
      return fail(Code::kNoAttribute, "manager.setxattr");
    }
    std::size_t bytes = change.name.size() + change.value.size();
    for (const auto& [name, value] : changed->xattrs) {
      if (name != change.name) bytes += name.size() + value.size();
    }
    if (bytes > kXattrsBytesMax) return fail(Code::kNoSpace, "manager.setxattr");
    if (is_access_list(change.name)) {
      STDCHK_TRY(set_list(*changed, change.name, change.value));
    } else {
      changed->xattrs[change.name] = change.value;
    }
  }
  if (change.name == kXattrAccessList && command.mirror && changed->in_drain && changed->parent) {
    catalog_.mirror.add(msg::MirrorKind::kAttributes, *changed, files_.path(*changed)).uid_before =
        changed->uid;
  }
  const bool is_rule = change.name.starts_with(kXattrRule);
  if (is_rule && changed->type == FileType::kDirectory) catalog_.change_rules(*changed);
  changed->ctime_ns = command.now_ns;
  return Affected{changed->id, {}};
}

Result<Affected> NameCommands::run(const SetPolicy& command) {
  STDCHK_ASSIGN(File * changed, files_.find_directory(command.directory));
  Policy next = changed->as_directory.policy;
  next.apply(command.changes);
  if (next.settings.size() > limits::kPolicySettingsMax) {
    return fail(Code::kNoSpace, "manager.policy");
  }
  changed->as_directory.policy = std::move(next);
  changed->ctime_ns = command.now_ns;
  return Affected{changed->id, {}};
}

Result<Affected> NameCommands::run(const SetLatest& command) {
  STDCHK_ASSIGN(File * folder, files_.find_directory(command.directory));
  const auto there = folder->as_directory.children.find(kLatestName);
  File* link_file =
      there == folder->as_directory.children.end() ? nullptr : files_.find(there->second);
  if (link_file != nullptr && link_file->type != FileType::kSymlink) {
    return fail(Code::kExists, "manager.latest");
  }
  if (link_file == nullptr && !command.target.empty()) {
    STDCHK_TRY(files_.check_new_id(command.id));
    link_file =
        &files_.add(command.id, FileType::kSymlink, 0777, folder->uid, folder->gid, command.now_ns);
    catalog_.link(*link_file, *folder, kLatestName);
  }
  folder->newest.mtime_ns = folder->ctime_ns = command.now_ns;
  if (command.drained.sequence > 0) catalog_.add_drained(*folder, command.drained);
  if (link_file == nullptr) return Affected{};
  if (command.drained.sequence == 0 && !command.drained.name.empty()) {
    catalog_.mirror.add(msg::MirrorKind::kSymlink, *link_file, files_.path(*link_file),
                        command.drained.name);
    link_file->in_drain = true;
  }
  // A user has removed the pool's link, and so the one in the drain directory.
  if (!folder->as_directory.drained_sets.empty() && !link_file->in_drain)
    catalog_.mirror_latest(*folder);
  link_file->newest.mtime_ns = link_file->ctime_ns = command.now_ns;
  link_file->target = command.target;
  const FileId id = link_file->id;
  if (command.target.empty()) {
    catalog_.unlink(*link_file);
    catalog_.erase_if_unused(*link_file);
  }
  return Affected{id, {}};
}

Result<Affected> NameCommands::run(const NameHeld& command) {
  File* const link = files_.find(command.file);
  const bool is_held = link != nullptr && catalog_.mirror.held().contains(link->id);
  if (!is_held || link->type != FileType::kSymlink) return fail(Code::kStale, "manager.name_held");
  catalog_.mirror.unhold(link->id);
  if (!link->parent) return Affected{link->id, {}};
  if (!link->in_drain) {
    catalog_.mirror.add(msg::MirrorKind::kSymlink, *link, files_.path(*link), link->target);
    link->in_drain = true;
    link->stale_in_drain = false;
  }
  links_.mirror_missing(*link);
  return Affected{link->id, {}};
}

Result<Affected> NameCommands::run(const BeginGeneration& command) {
  STDCHK_TRY(files_.directory(command.directory));
  catalog_.generations.begin(command);
  catalog_.sequence = std::max(catalog_.sequence, command.ended);
  for (const BeginGeneration::Set& set : command.sets)
    catalog_.sequence = std::max(catalog_.sequence, set.ended);
  return Affected{};
}

}  // namespace stdchk::manager
