#include "manager/state/version_commands.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "manager/state/pending_names.h"

namespace stdchk::manager {

Result<VersionCommands::Target> VersionCommands::check(const CommitVersion& command) {
  STDCHK_TRY(check_map(command.written));
  if (!well_formed(command.holes)) return fail(Code::kInvalidArgument, "manager.commit");
  if (command.size_bytes > limits::kFileBytesMax) return fail(Code::kTooLarge, "manager.commit");
  Target target;
  target.file = files_.find(command.file);
  if (command.create) {
    STDCHK_TRY(check_name(command.create->name));
    STDCHK_ASSIGN(target.parent, files_.find_directory(command.create->parent));
    const auto taken = target.parent->as_directory.children.find(command.create->name);
    if (taken != target.parent->as_directory.children.end())
      target.replaced = files_.find(taken->second);
    if (target.replaced != nullptr && target.replaced->type == FileType::kDirectory) {
      return fail(Code::kIsDirectory, "manager.commit");
    }
    if (!command.file) return fail(Code::kInvalidArgument, "manager.commit");
  } else if (target.file == nullptr) {
    return fail(Code::kNotFound, "manager.commit");
  }
  if (target.file != nullptr && target.file->type != FileType::kRegular) {
    return fail(Code::kIsDirectory, "manager.commit");
  }
  return target;
}

Result<Affected> VersionCommands::run(const CommitVersion& command) {
  STDCHK_ASSIGN(Target target, check(command));
  if (command.same_as != 0) {
    if (target.file == nullptr || command.create) return fail(Code::kStale, "manager.commit");
    return load(*target.file, command);
  }
  // All checks are done: the code below cannot fail.
  const Replaced replaced = command.create ? create(command, target) : Replaced{};
  File& file = *target.file;
  const ContentTable::Resolved written =
      catalog_.contents.resolve(command.written, command.homes, &file);
  count_history(command, file, written);
  VersionData next = next_version(command, file, written);
  const bool keeps_base = next.stored_bytes > covered_bytes(written.slices);
  next.written = keeps_base ? file.newest.written : next.sequence;
  // A change of a whole file leaves it whole.
  next.partial = command.partial && (!keeps_base || file.newest.partial);
  const std::uint64_t replaced_content = std::max(replaced.content, file.newest.content());
  catalog_.contents.refer(next);
  catalog_.set_newest(file, std::move(next));
  if (!keeps_base) catalog_.note_image(file, replaced_content, command.replacing);
  file.ctime_ns = command.now_ns;
  for (const ChunkIndex held : written.held) catalog_.contents.release(held);
  return Affected{file.id, replaced.id};
}

/// Gives the committed file its name, and makes the file if it does not exist.
VersionCommands::Replaced VersionCommands::create(const CommitVersion& command, Target& target) {
  const NewName& name = *command.create;
  if (target.file == nullptr) {
    target.file = &files_.add(command.file, FileType::kRegular, name.mode, name.uid, name.gid,
                              command.now_ns);
    target.file->xattrs.insert(name.xattrs.begin(), name.xattrs.end());
  }
  File& file = *target.file;
  file.atime_ns = name.atime_ns;
  PendingNames(files_).drop(file.id);
  Replaced out;
  if (target.replaced != nullptr && target.replaced != &file) {
    File& replaced = *target.replaced;
    out = {replaced.id, replaced.newest.content()};
    links_.make_first(replaced, target.parent->id, name.name);
    file.stale_in_drain = replaced.in_drain || replaced.stale_in_drain;
    if (command.mirror) links_.keep_for_next_name(replaced);
    catalog_.unlink(replaced);
    links_.give_next_name(replaced);
    catalog_.erase_if_unused(replaced);
  }
  if (!file.parent) catalog_.link(file, *target.parent, name.name);
  target.parent->newest.mtime_ns = target.parent->ctime_ns = command.now_ns;
  return out;
}

void VersionCommands::count_history(const CommitVersion& command, const File& file,
                                    const ContentTable::Resolved& written) {
  if (!file.parent || written.slices.empty()) return;
  const bool from_nothing =
      file.newest.size_bytes == 0 || (command.cut_before && command.cut_bytes == 0);
  catalog_.history.images += from_nothing ? 1 : 0;
  catalog_.history.written_bytes += covered_bytes(written.slices);
  catalog_.history.stored_bytes += written.added_bytes;
}

/// Returns the file's next version: its newest one, without the holes, and with the written slices
/// over it. The caller sets `written`. A file with a name takes the next commit number.
VersionData VersionCommands::next_version(const CommitVersion& command, const File& file,
                                          const ContentTable::Resolved& written) {
  const VersionData& newest = file.newest;
  PackedSlices base = command.cut_before ? cut(newest.slices, command.cut_bytes) : newest.slices;
  if (!command.holes.empty()) base = without(base, command.holes);
  const std::uint64_t base_size =
      command.cut_before ? std::min(newest.size_bytes, command.cut_bytes) : newest.size_bytes;
  VersionData next;
  next.version = newest.version + 1;
  // The journal lacks versions of files without a name. They get no number of their own, so that
  // replaying the journal gives the same numbers.
  next.sequence = file.parent ? ++catalog_.sequence : catalog_.sequence;
  next.opened = command.opened;
  next.slices = overlay(base, written.slices);
  const std::uint64_t end = next.slices.empty() ? 0 : next.slices.back().end();
  next.size_bytes =
      command.set_size ? command.size_bytes : std::max({base_size, command.size_bytes, end});
  if (end > next.size_bytes) next.slices = cut(next.slices, next.size_bytes);
  next.slices.shrink_to_fit();
  next.stored_bytes = covered_bytes(next.slices);
  next.mtime_ns = command.mtime_ns;
  next.copies = std::max(command.copies, 1U);
  next.naming = written.slices.empty() ? newest.naming : command.naming;
  // A named version has a number only while it waits for its name in the drain directory.
  next.aside = newest.aside;
  return next;
}

/// Puts a drained version's bytes back into memory. This makes a new version, because readers of
/// the old one know other chunks. Its place in the order of commits, and the drained file, stay as
/// they are.
Result<Affected> VersionCommands::load(File& file, const CommitVersion& command) {
  const VersionData& drained = file.newest;
  if (!file.parent || drained.version != command.same_as || !drained.drained) {
    return fail(Code::kStale, "manager.load");
  }
  const std::vector<Slice>& slices = command.written.slices;
  std::uint64_t end = 0;
  for (const Slice& slice : slices) {
    if (slice.file_offset != end) return fail(Code::kInvalidArgument, "manager.load");
    end += slice.length;
  }
  if (end != drained.size_bytes) return fail(Code::kInvalidArgument, "manager.load");
  ContentTable::Resolved written = catalog_.contents.resolve(command.written, command.homes, &file);
  VersionData next;
  next.version = drained.version + 1;
  next.size_bytes = drained.size_bytes;
  next.mtime_ns = drained.mtime_ns;
  next.sequence = drained.sequence;
  next.written = drained.written;
  next.opened = drained.opened;
  next.drained = true;
  next.partial = drained.partial;
  next.naming = command.naming;
  next.copies = std::max(command.copies, 1U);
  next.slices = std::move(written.slices);
  next.stored_bytes = covered_bytes(next.slices);
  catalog_.contents.refer(next);
  catalog_.set_newest(file, std::move(next));
  for (const ChunkIndex held : written.held) catalog_.contents.release(held);
  return Affected{file.id, {}};
}

Result<Affected> VersionCommands::run(const DrainStarted& command) {
  File* file = files_.find(command.file);
  if (file == nullptr) return fail(Code::kNotFound, "manager.drain_started");
  file->in_drain = true;
  links_.leave_drained(*file, file->newest.written);
  return Affected{file->id, {}};
}

Result<Affected> VersionCommands::run(const Drained& command) {
  File* file = files_.find(command.file);
  if (file == nullptr || file->type != FileType::kRegular ||
      file->newest.version != command.version) {
    return fail(Code::kStale, "manager.drained");
  }
  if (file->newest.drained) return Affected{file->id, {}};
  catalog_.commits.remove(*file);
  if (file->newest.stored_bytes > 0) {
    ++catalog_.history.drained_images;
    catalog_.history.drained_bytes += file->newest.stored_bytes;
  }
  catalog_.contents.mark_drained(file->newest);
  file->newest.drained = true;
  if (file->newest.aside != 0) catalog_.note_evicted(file->newest);
  file->newest.aside = 0;
  file->newest.staged = false;
  catalog_.mirror.unhold(file->id);
  file->in_drain = true;
  file->stale_in_drain = false;
  catalog_.commits.add(*file);
  links_.mirror_all(*file);
  return Affected{file->id, {}};
}

Result<Affected> VersionCommands::run(const DrainLost& command) {
  File* file = files_.find(command.file);
  if (file == nullptr || file->newest.version != command.version || !file->newest.drained) {
    return fail(Code::kStale, "manager.drain_lost");
  }
  catalog_.commits.remove(*file);
  catalog_.contents.mark_undrained(file->newest);
  file->newest.drained = file->newest.evicted = false;
  // Without this file its set is not whole there, whenever the file was written.
  links_.leave_drained(*file, kAfterAllCommits);
  catalog_.commits.add(*file);
  return Affected{file->id, {}};
}

Result<Affected> VersionCommands::run(const Evict& command) {
  File* file = files_.find(command.file);
  if (file == nullptr || file->newest.version != command.version || !file->newest.drained) {
    return fail(Code::kStale, "manager.evict");
  }
  STDCHK_TRY(catalog_.contents.evict(file->newest, command.slices));
  catalog_.commits.remove(*file);
  catalog_.note_evicted(file->newest);
  catalog_.commits.add(*file);
  return Affected{file->id, {}};
}

Result<Affected> VersionCommands::run(const Closed& command) {
  File* file = files_.find(command.file);
  if (file == nullptr || file->type != FileType::kRegular) {
    return fail(Code::kStale, "manager.closed");
  }
  file->newest.partial = command.lost;
  return Affected{file->id, {}};
}

Result<Affected> VersionCommands::run(const RestoreFile& command) {
  STDCHK_TRY(check_map(command.map));
  const Attributes& from = command.attributes;
  File* parent = nullptr;
  if (from.id != kRootFile) {
    STDCHK_TRY(check_name(command.name));
    STDCHK_TRY(files_.check_new_id(from.id));
    STDCHK_ASSIGN(parent, files_.find_directory(command.parent));
    if (parent->as_directory.children.count(command.name) > 0)
      return fail(Code::kExists, "manager.restore");
  } else if (from.type != FileType::kDirectory) {
    return fail(Code::kInvalidArgument, "manager.restore");
  }
  File& file = from.id == kRootFile
                   ? *files_.find(kRootFile)
                   : files_.add(from.id, from.type, from.mode, from.uid, from.gid, from.ctime_ns);
  file.mode = from.mode;
  file.uid = from.uid;
  file.gid = from.gid;
  file.atime_ns = from.atime_ns;
  file.ctime_ns = from.ctime_ns;
  file.target = command.target;
  file.device = from.device;
  file.xattrs.insert(command.xattrs.begin(), command.xattrs.end());
  file.as_directory.policy = command.policy;
  catalog_.read_rules(file);
  if (from.type == FileType::kDirectory) file.as_directory.drained_sets = command.drained_sets;
  file.in_drain = command.in_drain;
  file.stale_in_drain = command.stale_in_drain;
  if (command.held) catalog_.mirror.hold(file.id);
  file.newest.version = from.version;
  file.newest.mtime_ns = from.mtime_ns;
  if (from.type == FileType::kRegular) restore_content(file, command);
  if (parent != nullptr) catalog_.link(file, *parent, command.name);
  return Affected{file.id, {}};
}

void VersionCommands::restore_content(File& file, const RestoreFile& command) {
  VersionData& newest = file.newest;
  newest.size_bytes = command.attributes.size_bytes;
  newest.drained = command.drained;
  newest.sequence = command.sequence;
  newest.opened = command.opened;
  newest.written = command.written > 0 ? command.written : command.sequence;
  newest.copies = std::max(command.copies, 1U);
  newest.naming = command.attributes.naming;
  newest.aside = command.aside;
  newest.staged = command.staged;
  newest.partial = command.partial;
  catalog_.sequence = std::max(catalog_.sequence, command.sequence);
  ContentTable::Resolved resolved = catalog_.contents.resolve(command.map, command.homes, nullptr);
  newest.slices = std::move(resolved.slices);
  newest.stored_bytes = covered_bytes(newest.slices);
  catalog_.contents.refer(newest);
  for (const ChunkIndex held : resolved.held) catalog_.contents.release(held);
  newest.evicted = command.evicted;
}

}  // namespace stdchk::manager
