#include "fuse/name_requests.h"

#include <sys/stat.h>

#include <cstring>

#include "core/base/limits.h"
#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

constexpr unsigned kRenameNoReplace = 1;  // linux/fs.h
constexpr unsigned kRenameExchange = 2;
/// How often a look-up may find a file that is gone before it is held.
constexpr int kHoldTries = 100;

FileType type_of(mode_t mode) {
  if (S_ISFIFO(mode)) return FileType::kFifo;
  if (S_ISSOCK(mode)) return FileType::kSocket;
  if (S_ISCHR(mode)) return FileType::kCharacterDevice;
  if (S_ISBLK(mode)) return FileType::kBlockDevice;
  return FileType::kRegular;
}

}  // namespace

void NameRequests::lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.lookup"));
  const std::int32_t thread = fuse_req_ctx(request)->pid;
  const bool repeats = refused_.repeats(thread);
  auto found = repeats ? filesystem_.lookup_fresh(directory->file, name)
                       : filesystem_.lookup(directory->file, name);
  if (!repeats && found && (refused_.take(found->id) || is_unlinked(found->id)))
    found = filesystem_.lookup_fresh(directory->file, name);
  if (repeats && found) found = hold(thread, directory->file, name, *found);
  if (!found) return reply(request, fail(found.error()));
  entries_.reply(request, *found, parent, name);
}

/// Returns true when this mount knows that the file has lost its names. A cache may have one of them.
bool NameRequests::is_unlinked(FileId file) const {
  const auto node = nodes_.current(file);
  return node != nullptr && node->unlinked && !node->in_session();
}

/// Holds what the look-up has found for the call that follows, which the kernel repeats. If the file
/// is gone already, looks the name up again. Returns the file that it holds.
Result<Attributes> NameRequests::hold(std::int32_t thread, FileId directory, const char* name,
                                      Attributes found) {
  for (int i = 0; i < kHoldTries; ++i) {
    RefusedCalls::Held held{found.id, nullptr, {}, {}};
    Status done;
    const auto node = nodes_.current(found.id);
    const bool in_session = node != nullptr && node->in_session();  // a session keeps its file
    if (found.type == FileType::kRegular && !in_session) {
      auto file = filesystem_.open(found.id, {.read = true});
      if (file) held.file = std::move(*file);
      if (!file) done = fail(file.error());
    } else if (found.type == FileType::kSymlink) {
      auto target = filesystem_.read_symlink(found.id);
      if (target) held.target = std::move(*target);
      if (!target) done = fail(target.error());
    }
    if (!done && !is_gone(done.error())) held.error = done.error();
    if (done || held.error) {
      refused_.hold(thread, std::move(held));
      return found;
    }
    STDCHK_ASSIGN(found, filesystem_.lookup_fresh(directory, name));
  }
  return found;
}

void NameRequests::readlink(fuse_req_t request, fuse_ino_t number) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.readlink"));
  const std::int32_t thread = fuse_req_ctx(request)->pid;
  if (const auto held = refused_.held(thread, node->file)) {
    fuse_reply_readlink(request, held->target.c_str());
    return;
  }
  auto target = filesystem_.read_symlink(node->file);
  if (!target) {
    const bool again = is_gone(target.error()) &&
                       refused_.refuse(thread, node->file, RefusedCalls::Call::kReadlink);
    if (again) return reply(request, fail(Code::kStale, "mount.readlink"));
    return reply(request, fail(target.error()));
  }
  fuse_reply_readlink(request, target->c_str());
}

void NameRequests::mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
                         dev_t device) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.mknod"));
  if (const FileType type = type_of(mode); type != FileType::kRegular) {
    auto made =
        filesystem_.make_node(directory->file, name, type, owner_of(request, *directory, mode),
                              static_cast<std::uint32_t>(device));
    if (!made) return reply(request, fail(made.error()));
    return entries_.reply(request, *made, parent, name);
  }
  client::OpenFlags flags{.read = true, .write = true, .create = true, .exclusive = true};
  auto file = filesystem_.create(directory->file, name, flags, owner_of(request, *directory, mode));
  if (!file) return reply(request, fail(file.error()));
  Status committed = (*file)->commit();
  Attributes attributes = (*file)->attributes();
  Status closed = (*file)->close();
  if (!committed || !closed) return reply(request, committed ? closed : committed);
  entries_.reply(request, attributes, parent, name);
}

void NameRequests::mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.mkdir"));
  auto made = filesystem_.make_directory(directory->file, name,
                                         owner_of(request, *directory, mode | S_IFDIR));
  if (!made) return reply(request, fail(made.error()));
  entries_.reply(request, *made, parent, name);
}

void NameRequests::symlink(fuse_req_t request, const char* target, fuse_ino_t parent,
                           const char* name) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.symlink"));
  if (std::strlen(target) > limits::kSymlinkBytesMax) {
    return reply(request, fail(Code::kNameTooLong, "mount.symlink"));
  }
  auto made =
      filesystem_.make_symlink(directory->file, name, target, owner_of(request, *directory, 0777));
  if (!made) return reply(request, fail(made.error()));
  entries_.reply(request, *made, parent, name);
}

void NameRequests::remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory) {
  auto in = nodes_.find(parent);
  if (!in) return reply(request, fail(Code::kStale, "mount.remove"));
  NodePtr node;
  if (auto found = filesystem_.lookup(in->file, name)) node = nodes_.current(found->id);
  const auto left = filesystem_.remove(in->file, name, directory);
  if (!left) return reply(request, fail(left.error()));
  if (node) {
    node->times_due = writeback_;
    lost_name(*node, *left);
  }
  reply(request, {});
}

/// The mount never commits a file without a name again. Therefore it asks the pool in case of
/// doubt.
void NameRequests::lost_name(Node& node, std::uint32_t names_left) {
  if (names_left > 0) {
    const auto now = filesystem_.attributes(node.file);
    if (now && now->link_count > 0) return;
    if (!now && !is_gone(now.error())) return;
  }
  node.unlinked = true;
}

/// Commits a file that has got its first name.
Result<Attributes> NameRequests::commit_first(Node& node) {
  const WriterLock lock(node.mutex);
  if (node.writers.empty()) return fail(Code::kStale, "mount.link");
  STDCHK_TRY(node.writers.front()->commit());
  node.last = node.writers.front()->attributes();
  node.last.link_count = 1;
  return node.last;
}

/// Other mounts see only names of committed files. A new file is therefore committed first, as by
/// fsync().
void NameRequests::link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent,
                        const char* name) {
  auto node = nodes_.find(number);
  auto directory = nodes_.find(parent);
  if (!node || !directory) return reply(request, fail(Code::kStale, "mount.link"));
  if (node->type == FileType::kRegular) {
    const WriterLock lock(node->mutex);
    const bool has_name = !node->unlinked;
    if (has_name && !node->writers.empty() && node->writers.front()->attributes().version == 0) {
      if (const Status done = node->writers.front()->commit(); !done) return reply(request, done);
      node->last = node->writers.front()->attributes();
    }
  }
  auto linked = filesystem_.make_link(node->file, directory->file, name);
  if (!linked) return reply(request, fail(linked.error()));
  // Commits a file of O_TMPFILE, which has got its first name. Pages in the kernel's cache follow at
  // the close.
  if (node->unlinked.exchange(false)) {
    linked = commit_first(*node);
    if (!linked) return reply(request, fail(linked.error()));
  }
  node->times_due = writeback_;
  entries_.reply_link(request, node, *linked, parent, name);
}

void NameRequests::rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
                          const char* new_name, unsigned flags) {
  auto from_node = nodes_.find(from);
  auto to_node = nodes_.find(to);
  if (!from_node || !to_node) return reply(request, fail(Code::kStale, "mount.rename"));
  if ((flags & ~(kRenameNoReplace | kRenameExchange)) != 0) {
    return reply(request, fail(Code::kInvalidArgument, "mount.rename"));
  }
  msg::Rename change;
  change.from_parent = from_node->file;
  change.from_name = name;
  change.to_parent = to_node->file;
  change.to_name = new_name;
  change.no_replace = (flags & kRenameNoReplace) != 0;
  change.exchange = (flags & kRenameExchange) != 0;
  NodePtr moved;
  NodePtr replaced;
  if (auto found = filesystem_.lookup(change.from_parent, name)) moved = nodes_.current(found->id);
  if (auto found = filesystem_.lookup(change.to_parent, new_name)) {
    replaced = nodes_.current(found->id);
  }
  const auto left = filesystem_.rename(change);
  if (!left) return reply(request, fail(left.error()));
  if (moved != replaced) {
    if (moved) {
      moved->times_due = writeback_;
      const WriterLock lock(moved->mutex);
      moved->parent = to;
      moved->name = new_name;
    }
    if (replaced && change.exchange) {
      replaced->times_due = writeback_;
      const WriterLock lock(replaced->mutex);
      replaced->parent = from;
      replaced->name = name;
    } else if (replaced) {
      replaced->times_due = writeback_;
      lost_name(*replaced, *left);
    }
  }
  reply(request, {});
}

}  // namespace stdchk::mount
