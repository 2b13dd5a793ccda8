#include "manager/state/batch_commands.h"

#include <algorithm>

#include "manager/state/name_commands.h"
#include "manager/state/version_commands.h"

namespace stdchk::manager {
namespace {

Status status_of(const Result<Affected>& outcome) {
  if (!outcome) return fail(outcome.error());
  return {};
}

}  // namespace

Result<Affected> BatchCommands::run(const LeaseNames& command) {
  const NameLeases::Holder* const known = leases_.find(command.holder);
  const bool fits = known == nullptr || known->client == command.client;
  if (command.holder == 0 || !command.client || !fits) {
    return fail(Code::kInvalidArgument, "manager.lease");
  }
  if (command.directory) {
    STDCHK_TRY(catalog_.files.directory(command.directory));
    const std::uint64_t holder = leases_.holder(command.directory);
    if (holder != 0 && holder != command.holder) return fail(Code::kBusy, "manager.lease");
  }
  leases_.add_holder(command.holder, command.client);
  leases_.note_batch(command.holder, command.number);
  if (command.directory) leases_.add(command.directory, command.holder);
  return Affected{command.directory, {}};
}

Result<Affected> BatchCommands::run(const EndLeases& command) {
  if (command.directories.empty()) leases_.end_all(command.holder);
  for (const FileId directory : command.directories) leases_.end(command.holder, directory);
  return Affected{};
}

Result<Affected> BatchCommands::run(const ApplyNames& batch) {
  const NameLeases::Holder* const sender = leases_.find(batch.holder);
  if (sender == nullptr) return fail(Code::kStale, "manager.batch");
  if (batch.number != sender->newest_batch + 1) {
    return fail(Code::kInvalidArgument, "manager.batch");
  }
  const bool fits = std::ranges::all_of(
      batch.changes, [&](const ApplyNames::Entry& one) { return apply(batch, one).has_value(); });
  if (fits) {
    leases_.note_batch(batch.holder, batch.number);
  } else {
    leases_.end_all(batch.holder);
  }
  return Affected{};
}

Status BatchCommands::apply(const ApplyNames& batch, const ApplyNames::Entry& one) {
  const msg::NameChange& change = one.change;
  if (change.kind == msg::NameChangeKind::kAttributes) return change_attributes(batch, change);
  STDCHK_TRY(check_held(batch.holder, change.parent));
  switch (change.kind) {
    case msg::NameChangeKind::kAddFile:
      return add_file(batch, one);
    case msg::NameChangeKind::kAddDirectory:
      return add_directory(batch, change);
    case msg::NameChangeKind::kAddSymlink:
      return add_symlink(batch, change);
    case msg::NameChangeKind::kRemoveFile:
      return remove_file(batch, change);
    case msg::NameChangeKind::kRemoveDirectory:
      return remove_directory(batch, change);
    case msg::NameChangeKind::kRename:
      return rename(batch, change);
    default:
      return fail(Code::kInvalidArgument, "manager.batch");
  }
}

Status BatchCommands::check_held(std::uint64_t holder, FileId directory) const {
  if (leases_.holder(directory) != holder) return fail(Code::kStale, "manager.batch");
  return {};
}

/// Returns the file of that name, if it is the file that the holder means.
Result<const File*> BatchCommands::child(const msg::NameChange& change) const {
  STDCHK_ASSIGN(const File* const parent, catalog_.files.directory(change.parent));
  const auto found = parent->as_directory.children.find(change.name);
  if (found == parent->as_directory.children.end() || found->second != change.file) {
    return fail(Code::kNotFound, "manager.batch");
  }
  return catalog_.files.file(found->second);
}

Status BatchCommands::add_file(const ApplyNames& batch, const ApplyNames::Entry& one) {
  const msg::NameChange& change = one.change;
  STDCHK_TRY(catalog_.files.check_new_id(change.file));
  STDCHK_TRY(catalog_.files.check_new_name(change.parent, change.name));
  CommitVersion command;
  command.file = change.file;
  command.create = NewName{change.parent,  change.name, change.mode & 07777, change.uid, change.gid,
                           change.time_ns, {}};
  command.mtime_ns = command.now_ns = change.time_ns;
  command.mirror = batch.mirror;
  command.copies = one.copies;
  command.opened = catalog_.sequence;
  return status_of(VersionCommands(catalog_).run(command));
}

Status BatchCommands::add_directory(const ApplyNames& batch, const msg::NameChange& change) {
  STDCHK_TRY(status_of(NameCommands(catalog_).run(AddDirectory{change.file,
                                                               change.parent,
                                                               change.name,
                                                               change.mode & 07777,
                                                               change.uid,
                                                               change.gid,
                                                               change.time_ns,
                                                               batch.mirror,
                                                               {}})));
  if (change.lease) leases_.add(change.file, batch.holder);
  return {};
}

Status BatchCommands::add_symlink(const ApplyNames& batch, const msg::NameChange& change) {
  return status_of(NameCommands(catalog_).run(AddSymlink{change.file,
                                                         change.parent,
                                                         change.name,
                                                         change.target,
                                                         change.uid,
                                                         change.gid,
                                                         change.time_ns,
                                                         batch.mirror,
                                                         {}}));
}

Status BatchCommands::remove_file(const ApplyNames& batch, const msg::NameChange& change) {
  STDCHK_TRY(child(change));
  return status_of(NameCommands(catalog_).run(
      RemoveName{change.parent, change.name, false, change.time_ns, batch.mirror, {}}));
}

/// Only the holder of the removed directory knows that it is empty.
Status BatchCommands::remove_directory(const ApplyNames& batch, const msg::NameChange& change) {
  STDCHK_TRY(child(change));
  STDCHK_TRY(check_held(batch.holder, change.file));
  STDCHK_TRY(status_of(NameCommands(catalog_).run(
      RemoveName{change.parent, change.name, true, change.time_ns, batch.mirror, {}})));
  leases_.end(batch.holder, change.file);
  return {};
}

/// Directories do not move: leases of other clients may lie below them.
Status BatchCommands::rename(const ApplyNames& batch, const msg::NameChange& change) {
  STDCHK_TRY(check_held(batch.holder, change.to_parent));
  STDCHK_ASSIGN(const File* const moved, child(change));
  STDCHK_ASSIGN(const File* const to, catalog_.files.directory(change.to_parent));
  const auto replaced = to->as_directory.children.find(change.to_name);
  const bool replaces_directory =
      replaced != to->as_directory.children.end() &&
      catalog_.files.file(replaced->second)->type == FileType::kDirectory;
  if (moved->type == FileType::kDirectory || replaces_directory) {
    return fail(Code::kIsDirectory, "manager.batch");
  }
  return status_of(NameCommands(catalog_).run(RenameName{change.parent,
                                                         change.name,
                                                         change.to_parent,
                                                         change.to_name,
                                                         false,
                                                         false,
                                                         change.time_ns,
                                                         batch.mirror,
                                                         {}}));
}

/// A holder may change its directory's attributes, and those of the directory's files.
Status BatchCommands::change_attributes(const ApplyNames& batch, const msg::NameChange& change) {
  const File* const file = catalog_.files.file(change.file);
  // Without a name, the file may be one that only running sessions keep.
  if (file == nullptr || !file->parent) return fail(Code::kNotFound, "manager.batch");
  const bool is_held =
      leases_.holder(file->parent) == batch.holder || leases_.holder(file->id) == batch.holder;
  if (!is_held) return fail(Code::kStale, "manager.batch");
  return status_of(NameCommands(catalog_).run(ChangeAttributes{{{},
                                                                change.file,
                                                                change.mask,
                                                                change.mode,
                                                                change.uid,
                                                                change.gid,
                                                                change.atime_ns,
                                                                change.mtime_ns},
                                                               change.time_ns,
                                                               batch.mirror,
                                                               {}}));
}

}  // namespace stdchk::manager
