// Commands on names and attributes.
#include <algorithm>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/policy/image_name.h"
#include "manager/state/state.h"

namespace stdchk::manager {
namespace {

/// Greater than any commit number.
constexpr std::uint64_t kNow = ~std::uint64_t{0};

/// The most bytes of all extended attributes of a file. Each attribute may be as long as the kernel
/// allows. A single message must be able to carry all attributes of a file.
constexpr std::size_t kXattrsBytesMax = 2 * limits::kXattrBytesMax;
static_assert(kXattrsBytesMax + limits::kXattrBytesMax < limits::kMessageBytesMax);

}  // namespace

Result<File*> State::check_new_name(FileId parent, std::string_view name) {
  STDCHK_TRY(check_name(name));
  STDCHK_ASSIGN(File * directory, find_directory(parent));
  if (directory->children.count(name) > 0 || directory->pending_children.count(name) > 0) {
    return fail(Code::kExists, "manager.name");
  }
  // The directory was removed.
  if (!directory->parent) return fail(Code::kNotFound, "manager.name");
  return directory;
}

Status State::check_new_id(FileId id) const {
  if (!id || file(id) != nullptr) return fail(Code::kExists, "manager.id");
  return {};
}

Result<Outcome> State::run(const AddDirectory& command) {
  STDCHK_TRY(check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, check_new_name(command.parent, command.name));
  File& made = add_file(command.id, FileType::kDirectory, command.mode, command.uid, command.gid,
                        command.now_ns);
  link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.mirror) {
    made.in_drain = true;
    mirror(msg::MirrorKind::kMakeDirectory, made, path(made));
  }
  return Outcome{made.id, {}};
}

Result<Outcome> State::run(const AddSymlink& command) {
  if (command.target.empty() || command.target.size() > limits::kSymlinkBytesMax) {
    return fail(Code::kInvalidArgument, "manager.symlink");
  }
  STDCHK_TRY(check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, check_new_name(command.parent, command.name));
  File& made =
      add_file(command.id, FileType::kSymlink, 0777, command.uid, command.gid, command.now_ns);
  made.target = command.target;
  link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.mirror) {
    made.in_drain = true;
    mirror(msg::MirrorKind::kSymlink, made, path(made), made.target);
  }
  return Outcome{made.id, {}};
}

Result<Outcome> State::run(const RemoveName& command) {
  STDCHK_ASSIGN(File * parent, find_directory(command.parent));
  const auto child = parent->children.find(command.name);
  if (child == parent->children.end()) return fail(Code::kNotFound, "manager.remove");
  File& removed = *find(child->second);
  if (command.directory) {
    if (removed.type != FileType::kDirectory) return fail(Code::kNotDirectory, "manager.rmdir");
    if (!removed.children.empty() || !removed.pending_children.empty()) {
      return fail(Code::kNotEmpty, "manager.rmdir");
    }
  } else if (removed.type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "manager.unlink");
  }
  const FileId id = removed.id;
  if (removed.parent != parent->id || removed.name != command.name) {
    remove_link(removed, *parent, command.name, command.mirror);
    removed.ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
    return Outcome{id, {}};
  }
  if (command.mirror && (removed.in_drain || removed.stale_in_drain)) {
    leave_drained(*parent, command.name, kNow);
    mirror_lost_name(removed, command.directory);
  }
  note_loss(removed);
  unlink(removed);
  give_next_name(removed);
  if (command.directory) set_generations_.forget(id);
  removed.ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  erase_if_unused(removed);
  return Outcome{id, {}};
}

Status State::check_replace(const File& from, const File& to) const {
  if (to.type == FileType::kDirectory) {
    if (from.type != FileType::kDirectory) return fail(Code::kIsDirectory, "manager.rename");
    if (!to.children.empty() || !to.pending_children.empty()) {
      return fail(Code::kNotEmpty, "manager.rename");
    }
  } else if (from.type == FileType::kDirectory) {
    return fail(Code::kNotDirectory, "manager.rename");
  }
  return {};
}

Result<Outcome> State::run(const RenameName& command) {
  STDCHK_TRY(check_name(command.to_name));
  STDCHK_ASSIGN(File * from_parent, find_directory(command.from_parent));
  STDCHK_ASSIGN(File * to_parent, find_directory(command.to_parent));
  const auto source = from_parent->children.find(command.from_name);
  if (source == from_parent->children.end()) return fail(Code::kNotFound, "manager.rename");
  File& moved = *find(source->second);
  if (moved.type == FileType::kDirectory && is_below(to_parent->id, moved.id)) {
    return fail(Code::kCrossesDirectory, "manager.rename");
  }
  if (!to_parent->parent) return fail(Code::kNotFound, "manager.rename");
  const auto target = to_parent->children.find(command.to_name);
  File* replaced = target == to_parent->children.end() ? nullptr : find(target->second);
  if (command.exchange) {
    if (replaced == nullptr) return fail(Code::kNotFound, "manager.exchange");
    return exchange(moved, *replaced, command);
  }
  if (replaced != nullptr) {
    if (command.no_replace) return fail(Code::kExists, "manager.rename");
    if (replaced == &moved) return Outcome{moved.id, {}};
    STDCHK_TRY(check_replace(moved, *replaced));
    make_first(*replaced, to_parent->id, command.to_name);
  }
  make_first(moved, from_parent->id, command.from_name);
  // A pending file of that name loses its name, as any file does on a rename over it.
  const auto pending = to_parent->pending_children.find(command.to_name);
  if (pending != to_parent->pending_children.end()) drop_pending_name(pending->second);

  if (command.mirror && (moved.in_drain || moved.stale_in_drain)) {
    leave_drained(*from_parent, command.from_name, kNow);
    leave_drained(*to_parent, command.to_name, kNow);
  }
  const std::string old_path = path(moved);
  const FileId replaced_id = replaced == nullptr ? FileId{} : replaced->id;
  const std::uint64_t replaced_content = replaced == nullptr ? 0 : replaced->newest.content();
  if (replaced != nullptr) {
    if (command.mirror) keep_for_next_name(*replaced);
    unlink(*replaced);
    set_generations_.forget(replaced->id);
    replaced->ctime_ns = command.now_ns;
  }
  note_loss(moved);
  const SetNaming* const read_before = naming(*from_parent);
  unlink(moved);
  link_again(moved, *to_parent, command.to_name, to_parent != from_parent, replaced_content);
  if (moved.type == FileType::kDirectory) read_moved_names(moved, read_before);
  if (command.mirror) mirror_rename(moved, old_path, path(moved), replaced);
  moved.ctime_ns = from_parent->newest.mtime_ns = from_parent->ctime_ns = command.now_ns;
  to_parent->newest.mtime_ns = to_parent->ctime_ns = command.now_ns;
  if (replaced != nullptr) {
    give_next_name(*replaced);
    erase_if_unused(*replaced);
  }
  return Outcome{moved.id, replaced_id};
}

Result<Outcome> State::exchange(File& from, File& to, const RenameName& command) {
  File* from_parent = find(command.from_parent);
  File* to_parent = find(command.to_parent);
  if (to.type == FileType::kDirectory && is_below(from_parent->id, to.id)) {
    return fail(Code::kCrossesDirectory, "manager.exchange");
  }
  if (&from == &to) return Outcome{from.id, {}};
  make_first(from, from_parent->id, command.from_name);
  make_first(to, to_parent->id, command.to_name);
  if (command.mirror) {
    leave_drained(*from_parent, command.from_name, kNow);
    leave_drained(*to_parent, command.to_name, kNow);
  }
  const std::string from_path = path(from);
  const std::string to_path = path(to);
  const std::uint64_t from_content = from.newest.content();
  const std::uint64_t to_content = to.newest.content();
  const bool elsewhere = from_parent != to_parent;
  const SetNaming* const from_names = naming(*from_parent);
  const SetNaming* const to_names = naming(*to_parent);
  unlink(from);
  unlink(to);
  link_again(from, *to_parent, command.to_name, elsewhere, to_content);
  link_again(to, *from_parent, command.from_name, elsewhere, from_content);
  if (from.type == FileType::kDirectory) read_moved_names(from, from_names);
  if (to.type == FileType::kDirectory) read_moved_names(to, to_names);
  if (command.mirror) mirror_exchange(from, from_path, to, to_path);
  from.ctime_ns = to.ctime_ns = command.now_ns;
  from_parent->newest.mtime_ns = from_parent->ctime_ns = command.now_ns;
  to_parent->newest.mtime_ns = to_parent->ctime_ns = command.now_ns;
  return Outcome{from.id, to.id};
}

/// Queues a change for the drain directory. Its number is its position in the queue.
msg::MirrorChange& State::mirror(msg::MirrorKind kind, const File& file, std::string path,
                                 std::string other) {
  msg::MirrorChange change;
  change.kind = kind;
  change.path = std::move(path);
  change.other_path = std::move(other);
  change.file = file.id;
  change.number = ++mirror_sequence_;
  change.mode = file.mode;
  change.uid = file.uid;
  change.gid = file.gid;
  change.mtime_ns = file.newest.mtime_ns;
  return mirror_queue_[mirror_sequence_] = std::move(change);
}

/// Called before the file loses its name. Queues a change that keeps its bytes in the drain
/// directory readable for clients that have the file open.
void State::set_aside(File& file) {
  if (!file.in_drain || file.type != FileType::kRegular) return;
  mirror(msg::MirrorKind::kSetAside, file, path(file));
  if (needs_drained(file.newest)) file.newest.aside = mirror_sequence_;
  set_older_aside(file.id, mirror_sequence_);
}

void State::add_drained(File& folder, const DrainedSet& set) {
  if (set.name.empty()) return;
  std::vector<DrainedSet>& sets = folder.drained_sets;
  const std::string named = sets.empty() ? std::string() : sets.back().name;
  std::erase_if(sets, [&](const DrainedSet& other) { return other.name == set.name; });
  const auto after = std::ranges::upper_bound(sets, set.sequence, {}, &DrainedSet::sequence);
  sets.insert(after, set);
  if (sets.size() > limits::kDrainedSetsMax) sets.erase(sets.begin());
  if (sets.back().name != named) mirror_latest(folder);
}

/// Called before the drain directory gets or loses an image of that name, whose content commit
/// `written` wrote. Drops the image's set from the sets that are whole there. The set stays whole
/// if the content is not newer than the set, because an existing image changes only in part.
void State::leave_drained(File& folder, std::string_view name, std::uint64_t written) {
  const bool by_directory = directory_set_folders_ > 0;
  if (folder.drained_sets.empty() && !by_directory) return;
  const auto place = set_of(folder.id, name);
  if (!place) return;
  File& holder = *find(place->first);
  std::vector<DrainedSet>& sets = holder.drained_sets;
  // Earlier versions named the set without the zeros of its images.
  const auto image = image_name(folder.id, name);
  const std::string plain = image ? set_name(image->application, image->timestep) : std::string();
  const auto set = std::ranges::find_if(
      sets, [&](const DrainedSet& one) { return one.name == place->second || one.name == plain; });
  if (set == sets.end() || written <= set->sequence) return;
  const bool named = set + 1 == sets.end();
  sets.erase(set);
  if (named) mirror_latest(holder);
}

/// Points the link in the drain directory to the newest whole set, or removes it. A user's own file
/// of that name in the pool prevents that.
void State::mirror_latest(File& folder) {
  const auto there = folder.children.find(kLatestName);
  File* const link_file = there == folder.children.end() ? nullptr : find(there->second);
  if (link_file != nullptr && link_file->type != FileType::kSymlink) return;
  const bool any = !folder.drained_sets.empty();
  const std::string above = path(folder);
  const std::string at = above.empty() ? kLatestName : above + "/" + kLatestName;
  mirror(any ? msg::MirrorKind::kSymlink : msg::MirrorKind::kUnlink, folder, at,
         any ? folder.drained_sets.back().name : std::string());
  if (link_file != nullptr) link_file->in_drain = any;
}

/// A renamed file that was never drained leaves the file that it replaces in the drain directory.
/// Its own drain replaces that file, so the parallel file system always has one of the two.
void State::mirror_rename(File& file, const std::string& from, const std::string& to,
                          const File* replaced) {
  const bool covers = replaced != nullptr && (replaced->in_drain || replaced->stale_in_drain);
  if (file.in_drain) {
    mirror(msg::MirrorKind::kRename, file, from, to);
    file.stale_in_drain = false;
    return;
  }
  if (file.stale_in_drain) mirror(msg::MirrorKind::kUnlink, file, from);
  file.stale_in_drain = covers;
}

void State::mirror_exchange(File& a, const std::string& path_a, File& b,
                            const std::string& path_b) {
  if (a.in_drain && b.in_drain) {
    // Uses three renames: each may be repeated safely, but one exchange may not.
    const std::uint64_t last = mirror_sequence_ + 3;
    mirror(msg::MirrorKind::kRename, a, path_a).number = last;
    mirror(msg::MirrorKind::kRename, b, path_b, path_a);
    mirror(msg::MirrorKind::kRename, a, {}, path_b);
  } else if (a.in_drain) {
    mirror(msg::MirrorKind::kRename, a, path_a, path_b);
  } else if (b.in_drain) {
    mirror(msg::MirrorKind::kRename, b, path_b, path_a);
  } else {
    if (a.stale_in_drain) mirror(msg::MirrorKind::kUnlink, a, path_a);
    if (b.stale_in_drain) mirror(msg::MirrorKind::kUnlink, b, path_b);
  }
  a.stale_in_drain = b.stale_in_drain = false;
}

Result<Outcome> State::run(const ChangeAttributes& command) {
  const msg::SetAttributes& change = command.change;
  File* changed = find(change.file);
  if (changed == nullptr) return fail(Code::kNotFound, "manager.setattr");
  const auto has = [&](msg::SetMask bit) {
    return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
  };
  const std::uint32_t uid_before = changed->uid;
  if (has(msg::SetMask::kMode)) changed->mode = change.mode & 07777;
  if (has(msg::SetMask::kUid)) changed->uid = change.uid;
  if (has(msg::SetMask::kGid)) changed->gid = change.gid;
  if (has(msg::SetMask::kAtime)) changed->atime_ns = change.atime_ns;
  if (has(msg::SetMask::kMtime)) changed->newest.mtime_ns = change.mtime_ns;
  changed->ctime_ns = command.now_ns;
  const bool shows = (change.mask & ~static_cast<std::uint32_t>(msg::SetMask::kAtime)) != 0;
  if (command.mirror && shows && changed->in_drain && changed->parent && changed->id != kRootFile) {
    mirror(msg::MirrorKind::kAttributes, *changed, path(*changed)).uid_before = uid_before;
  }
  return Outcome{changed->id, {}};
}

Result<Outcome> State::run(const ChangeXattr& command) {
  const msg::SetXattr& change = command.change;
  File* changed = find(change.file);
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
    changed->xattrs[change.name] = change.value;
  }
  const bool is_rule = change.name.starts_with(kXattrRule);
  if (is_rule && changed->type == FileType::kDirectory) change_rules(*changed);
  changed->ctime_ns = command.now_ns;
  return Outcome{changed->id, {}};
}

Result<Outcome> State::run(const SetPolicy& command) {
  STDCHK_ASSIGN(File * changed, find_directory(command.directory));
  Policy next = changed->policy;
  next.apply(command.changes);
  if (next.settings.size() > limits::kPolicySettingsMax) {
    return fail(Code::kNoSpace, "manager.policy");
  }
  changed->policy = std::move(next);
  changed->ctime_ns = command.now_ns;
  return Outcome{changed->id, {}};
}

Result<Outcome> State::run(const SetLatest& command) {
  STDCHK_ASSIGN(File * folder, find_directory(command.directory));
  const auto there = folder->children.find(kLatestName);
  File* link_file = there == folder->children.end() ? nullptr : find(there->second);
  if (link_file != nullptr && link_file->type != FileType::kSymlink) {
    return fail(Code::kExists, "manager.latest");
  }
  if (link_file == nullptr && !command.target.empty()) {
    STDCHK_TRY(check_new_id(command.id));
    link_file =
        &add_file(command.id, FileType::kSymlink, 0777, folder->uid, folder->gid, command.now_ns);
    link(*link_file, *folder, kLatestName);
  }
  folder->newest.mtime_ns = folder->ctime_ns = command.now_ns;
  if (command.drained.sequence > 0) add_drained(*folder, command.drained);
  if (link_file == nullptr) return Outcome{};
  if (command.drained.sequence == 0 && !command.drained.name.empty()) {
    mirror(msg::MirrorKind::kSymlink, *link_file, path(*link_file), command.drained.name);
    link_file->in_drain = true;
  }
  // A user has removed the pool's link, and so the one in the drain directory.
  if (!folder->drained_sets.empty() && !link_file->in_drain) mirror_latest(*folder);
  link_file->newest.mtime_ns = link_file->ctime_ns = command.now_ns;
  link_file->target = command.target;
  const FileId id = link_file->id;
  if (command.target.empty()) {
    unlink(*link_file);
    erase_if_unused(*link_file);
  }
  return Outcome{id, {}};
}

Result<Outcome> State::run(const BeginGeneration& command) {
  STDCHK_TRY(directory(command.directory));
  set_generations_.begin(command);
  sequence_ = std::max(sequence_, command.ended);
  for (const BeginGeneration::Set& set : command.sets) sequence_ = std::max(sequence_, set.ended);
  return Outcome{};
}

Result<Outcome> State::run(const RestoreCalls& command) {
  completion_records_.restore(command);
  return Outcome{};
}

Result<Outcome> State::run(const Mirrored& command) {
  mirror_queue_.erase(command.sequence);
  return Outcome{};
}

Result<Outcome> State::run(const RestoreMirror& command) {
  mirror_queue_[command.sequence] = command.change;
  return Outcome{};
}

}  // namespace stdchk::manager
