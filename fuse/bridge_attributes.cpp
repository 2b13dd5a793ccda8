// Attributes, entries, names and extended attributes.

#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "fuse/bridge.h"

namespace stdchk::mount {
namespace {

constexpr double kCacheSeconds = std::chrono::duration<double>(limits::kCacheLease).count();
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kGeneration = 1;  // node numbers are never used twice
constexpr blksize_t kPreferredBytes = limits::kMiB;
constexpr unsigned kRenameNoReplace = 1;  // linux/fs.h
constexpr unsigned kRenameExchange = 2;

timespec to_timespec(std::int64_t ns) {
  std::int64_t seconds = ns / kNsPerSecond;
  std::int64_t rest = ns % kNsPerSecond;
  if (rest < 0) {
    rest += kNsPerSecond;
    seconds--;
  }
  return {seconds, rest};
}

mode_t type_bits(FileType type) {
  switch (type) {
    case FileType::kDirectory:
      return S_IFDIR;
    case FileType::kSymlink:
      return S_IFLNK;
    case FileType::kRegular:
      break;
  }
  return S_IFREG;
}

constexpr std::string_view kTrusted = "trusted.";

/// The kernel itself checks who may use which of these kinds. Not security.capability: a mount
/// without set-ID bits (nosuid) gives no capabilities, and each write would have to remove it.
/// Not POSIX ACLs: the mount does not check them.
bool is_stored_xattr(std::string_view name) {
  return name.starts_with("user.") || name.starts_with(kTrusted) ||
         (name.starts_with("security.") && name != "security.capability");
}
bool is_virtual(std::string_view name) { return name == kXattrVersion || name == kXattrDrained; }

/// Answers a getxattr or listxattr: with the length of the value if `size` is 0, else with the
/// value.
void reply_sized(fuse_req_t request, std::string_view value, std::size_t size) {
  if (size == 0) {
    fuse_reply_xattr(request, value.size());
  } else if (value.size() > size) {
    reply_error(request, ERANGE);
  } else {
    fuse_reply_buf(request, value.data(), value.size());
  }
}

}  // namespace

/// Returns the attributes that users see. Names, modes and times come from the pool. Size and
/// version are those of this node, which may belong to a session or to an older version.
Attributes Bridge::view(Node& node) {
  auto now = filesystem_.attributes(node.file);
  const ReaderLock lock(node.mutex);
  Attributes own = node.last;
  bool session = !node.writers.empty();
  if (session) own = node.writers.front()->attributes();
  if (!now) {
    own.link_count = node.unlinked || now.error().code == Code::kNotFound ? 0 : own.link_count;
    return own;
  }
  Attributes shown = *now;
  if (node.type == FileType::kRegular && (session || shown.version != own.version)) {
    shown.size_bytes = own.size_bytes;
    // Bytes that are not stored yet count too: tools take a file with few blocks for a sparse file.
    shown.stored_bytes = session ? own.size_bytes : own.stored_bytes;
    shown.version = own.version;
    shown.mtime_ns = own.mtime_ns;
  }
  if (node.mtime_set) shown.mtime_ns = *node.mtime_set;
  return shown;
}

struct stat Bridge::stat_of(const Attributes& attributes) const {
  struct stat out {};
  out.st_ino = attributes.id.value;
  out.st_mode = type_bits(attributes.type) | (attributes.mode & 07777);
  out.st_nlink = attributes.link_count;
  out.st_uid = attributes.uid;
  out.st_gid = attributes.gid;
  out.st_size = static_cast<off_t>(attributes.size_bytes);
  out.st_blksize = kPreferredBytes;
  out.st_blocks = static_cast<blkcnt_t>((attributes.stored_bytes + 511) / 512);
  out.st_atim = to_timespec(attributes.atime_ns);
  out.st_mtim = to_timespec(attributes.mtime_ns);
  out.st_ctim = to_timespec(attributes.ctime_ns);
  return out;
}

fuse_entry_param Bridge::entry_of(const Node& node, const Attributes& attributes) const {
  fuse_entry_param entry{};
  entry.ino = node.id;
  entry.generation = kGeneration;
  entry.attr = stat_of(attributes);
  entry.attr_timeout = kCacheSeconds;
  entry.entry_timeout = kCacheSeconds;
  return entry;
}

Result<fuse_entry_param> Bridge::make_entry(const Attributes& attributes, fuse_ino_t parent,
                                            std::string_view name) {
  STDCHK_ASSIGN(auto node, nodes_.find_or_make(attributes, parent, name));
  return entry_of(*node, node->in_session() ? view(*node) : attributes);
}

void Bridge::reply_entry(fuse_req_t request, const Attributes& attributes, fuse_ino_t parent,
                         std::string_view name) {
  auto entry = make_entry(attributes, parent, name);
  if (!entry) return reply(request, fail(entry.error()));
  // The kernel was interrupted and does not count this reference.
  if (fuse_reply_entry(request, &*entry) == -ENOENT) nodes_.forget(entry->ino, 1);
}

client::Owner Bridge::owner_of(fuse_req_t request, const Node& parent, mode_t mode) const {
  const fuse_ctx* caller = fuse_req_ctx(request);
  client::Owner owner{mode & 07777, caller->uid, caller->gid};
  const ReaderLock lock(parent.mutex);
  if ((parent.last.mode & S_ISGID) != 0) {
    owner.gid = parent.last.gid;
    if (S_ISDIR(mode)) owner.mode |= S_ISGID;
  }
  return owner;
}

void Bridge::lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.lookup"));
  auto found = filesystem_.lookup(directory->file, name);
  if (found) {
    bool refresh = false;
    {
      const MutexLock lock(refresh_mutex_);
      refresh = refresh_.erase(found->id) > 0;
    }
    if (refresh) found = filesystem_.lookup_fresh(directory->file, name);
  }
  if (!found) return reply(request, fail(found.error()));
  reply_entry(request, *found, parent, name);
}

void Bridge::forget(fuse_ino_t node, std::uint64_t count) { nodes_.forget(node, count); }

void Bridge::getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.getattr"));
  if (node->type != FileType::kRegular) {
    auto now = filesystem_.attributes(node->file);
    if (!now) return reply(request, fail(now.error()));
    {
      const WriterLock lock(node->mutex);
      node->last = *now;
    }
    struct stat out = stat_of(*now);
    fuse_reply_attr(request, &out, kCacheSeconds);
    return;
  }
  struct stat out = stat_of(view(*node));
  fuse_reply_attr(request, &out, kCacheSeconds);
}

/// Truncates the file. Without an open session, this is a session of its own: open, truncate,
/// commit.
Status Bridge::truncate(const NodePtr& node, Handle* handle, std::uint64_t size) {
  if (size > limits::kFileBytesMax) return fail(Code::kTooLarge, "mount.truncate");
  if (handle != nullptr && handle->writes) {
    node->changed = true;
    return handle->file->truncate(size);
  }
  {
    const ReaderLock lock(node->mutex);
    if (!node->writers.empty()) {
      node->changed = true;
      return node->writers.front()->truncate(size);
    }
  }
  STDCHK_ASSIGN(auto file, filesystem_.open(node->file, {.read = true, .write = true}));
  if (Status done = file->truncate(size); !done) {
    file->abort();
    return done;
  }
  STDCHK_TRY(file->commit());
  Attributes after = file->attributes();
  STDCHK_TRY(file->close());
  // The kernel cuts the pages of this node. The new version needs another node.
  nodes_.detach(node);
  {
    const WriterLock lock(node->mutex);
    node->last = after;
  }
  expire_node(node);
  return {};
}

Status Bridge::change_attributes(const NodePtr& node, const msg::SetAttributes& change) {
  bool sets_mtime = (change.mask & static_cast<std::uint32_t>(msg::SetMask::kMtime)) != 0;
  STDCHK_ASSIGN(auto after, filesystem_.set_attributes(change));
  const WriterLock lock(node->mutex);
  node->last.mode = after.mode;
  node->last.uid = after.uid;
  node->last.gid = after.gid;
  node->last.atime_ns = after.atime_ns;
  node->last.ctime_ns = after.ctime_ns;
  if (sets_mtime) node->last.mtime_ns = change.mtime_ns;
  // A commit sets the time of the last write. A time that utimens() set after that write must stay.
  if (sets_mtime && !node->writers.empty()) {
    node->mtime_set = change.mtime_ns;
    node->mtime_is_set = true;
  }
  return {};
}

void Bridge::setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted, int mask,
                     fuse_file_info* info) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.setattr"));
  node->times_due = false;
  if (node->unlinked && !nodes_.is_open(node->id)) {
    // When the kernel drops the inode it writes its times back. The pool no longer has the file.
    const ReaderLock lock(node->mutex);
    struct stat out = stat_of(node->last);
    out.st_nlink = 0;
    fuse_reply_attr(request, &out, 0);
    return;
  }
  if ((mask & FUSE_SET_ATTR_SIZE) != 0) {
    Handle* handle = info != nullptr ? &handle_of(info) : nullptr;
    Status done = truncate(node, handle, static_cast<std::uint64_t>(wanted->st_size));
    if (!done) return reply(request, done);
  }
  // As at writes; who has CAP_FSETID keeps the bits of a file at a truncation, but not at a chown.
  bool kills = kills_set_id(request, info != nullptr ? &handle_of(info) : nullptr);
  bool changes_owner = (mask & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0;
  bool truncates = (mask & FUSE_SET_ATTR_SIZE) != 0;
  if (node->type == FileType::kRegular && (changes_owner || (truncates && kills))) {
    clear_set_id_of_pool(*node, request);
  }
  msg::SetAttributes change;
  change.file = node->file;
  auto set = [&](int bit, msg::SetMask flag) {
    if ((mask & bit) == 0) return false;
    change.mask |= static_cast<std::uint32_t>(flag);
    return true;
  };
  if (set(FUSE_SET_ATTR_MODE, msg::SetMask::kMode)) {
    change.mode = wanted->st_mode & 07777;
    // From now on the next write of a user takes the bits away that this sets.
    node->set_id_killed = false;
    if (auto current = nodes_.current(node->file)) current->set_id_killed = false;
  }
  if (set(FUSE_SET_ATTR_UID, msg::SetMask::kUid)) change.uid = wanted->st_uid;
  if (set(FUSE_SET_ATTR_GID, msg::SetMask::kGid)) change.gid = wanted->st_gid;
  if (set(FUSE_SET_ATTR_ATIME, msg::SetMask::kAtime)) {
    bool now = (mask & FUSE_SET_ATTR_ATIME_NOW) != 0;
    change.atime_ns = now ? clock_.wall_ns() : to_ns(wanted->st_atim);
  }
  // With a truncation the kernel may also send the present time. The commit sets it anyway.
  if (!truncates && set(FUSE_SET_ATTR_MTIME, msg::SetMask::kMtime)) {
    bool now = (mask & FUSE_SET_ATTR_MTIME_NOW) != 0;
    change.mtime_ns = now ? clock_.wall_ns() : to_ns(wanted->st_mtim);
  }
  if (change.mask != 0) {
    Status done = change_attributes(node, change);
    bool gone =
        !done && (done.error().code == Code::kNotFound || done.error().code == Code::kStale);
    // Only this node still has the attributes of an unlinked open file. The kernel also flushes the
    // times of a file that it unlinks or replaces. If that failed, the kernel would fail the next
    // write to the inode.
    bool flushes_times = (mask & ~(FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME)) == 0;
    bool nameless = gone && (node->unlinked || flushes_times);
    if (!done && !nameless) return reply(request, done);
  }
  struct stat out = stat_of(view(*node));
  fuse_reply_attr(request, &out, kCacheSeconds);
}

void Bridge::readlink(fuse_req_t request, fuse_ino_t number) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.readlink"));
  auto target = filesystem_.read_symlink(node->file);
  if (!target) return reply(request, fail(target.error()));
  fuse_reply_readlink(request, target->c_str());
}

void Bridge::mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.mknod"));
  if (!S_ISREG(mode)) return reply(request, fail(Code::kUnsupported, "mount.mknod"));
  client::OpenFlags flags{.read = true, .write = true, .create = true, .exclusive = true};
  auto file = filesystem_.create(directory->file, name, flags, owner_of(request, *directory, mode));
  if (!file) return reply(request, fail(file.error()));
  Status committed = (*file)->commit();
  Attributes attributes = (*file)->attributes();
  Status closed = (*file)->close();
  if (!committed || !closed) return reply(request, committed ? closed : committed);
  reply_entry(request, attributes, parent, name);
}

void Bridge::mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.mkdir"));
  auto made = filesystem_.make_directory(directory->file, name,
                                         owner_of(request, *directory, mode | S_IFDIR));
  if (!made) return reply(request, fail(made.error()));
  reply_entry(request, *made, parent, name);
}

void Bridge::symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.symlink"));
  if (std::strlen(target) > limits::kSymlinkBytesMax) {
    return reply(request, fail(Code::kNameTooLong, "mount.symlink"));
  }
  auto made =
      filesystem_.make_symlink(directory->file, name, target, owner_of(request, *directory, 0777));
  if (!made) return reply(request, fail(made.error()));
  reply_entry(request, *made, parent, name);
}

void Bridge::remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory) {
  auto in = nodes_.find(parent);
  if (!in) return reply(request, fail(Code::kStale, "mount.remove"));
  NodePtr node;
  if (auto found = filesystem_.lookup(in->file, name)) node = nodes_.current(found->id);
  Status done = filesystem_.remove(in->file, name, directory);
  if (done && node) node->unlinked = true;
  reply(request, done);
}

void Bridge::rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
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
  Status done = filesystem_.rename(change);
  if (done && moved != replaced) {
    if (moved) {
      moved->times_due = options_.writeback;
      const WriterLock lock(moved->mutex);
      moved->parent = to;
      moved->name = new_name;
    }
    if (replaced && change.exchange) {
      replaced->times_due = options_.writeback;
      const WriterLock lock(replaced->mutex);
      replaced->parent = from;
      replaced->name = name;
    } else if (replaced) {
      replaced->unlinked = true;
    }
  }
  reply(request, done);
}

void Bridge::statfs(fuse_req_t request) {
  auto pool = filesystem_.stat_pool();
  if (!pool) return reply(request, fail(pool.error()));
  constexpr std::uint64_t kBlock = 4096;
  struct statvfs out {};
  out.f_bsize = kPreferredBytes;
  out.f_frsize = kBlock;
  out.f_blocks = pool->total_bytes / kBlock;
  // Drained images make room when space is needed, so their space counts as free.
  out.f_bfree = out.f_bavail = (pool->free_bytes + pool->evictable_bytes) / kBlock;
  constexpr std::uint64_t kFilesMax = std::uint64_t{1} << 32;
  out.f_files = kFilesMax;
  out.f_ffree = out.f_favail = kFilesMax - std::min(kFilesMax, pool->file_count);
  out.f_namemax = limits::kNameBytesMax;
  fuse_reply_statfs(request, &out);
}

void Bridge::setxattr(fuse_req_t request, fuse_ino_t number, const char* name,
                      std::string_view value, int flags, bool remove) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.setxattr"));
  if (!is_stored_xattr(name)) return reply(request, fail(Code::kUnsupported, "mount.setxattr"));
  if (is_virtual(name)) return reply(request, fail(Code::kPermission, "mount.setxattr"));
  if (std::string_view(name).starts_with(kXattrPolicy)) {
    return reply(request, set_policy(*node, std::string_view(name).substr(kXattrPolicy.size()),
                                     remove ? "inherit" : value));
  }
  if (value.size() > limits::kXattrBytesMax) {
    return reply(request, fail(Code::kSystem, "mount.setxattr", E2BIG));
  }
  if (name == kXattrWriteMode && !remove && value != "cached" && value != "direct") {
    return reply(request, fail(Code::kInvalidArgument, "mount.setxattr"));
  }
  msg::SetXattr change;
  change.file = node->file;
  change.name = name;
  change.value = value;
  change.remove = remove;
  if ((flags & XATTR_CREATE) != 0) change.mode = msg::XattrMode::kCreate;
  if ((flags & XATTR_REPLACE) != 0) change.mode = msg::XattrMode::kReplace;
  Status done = filesystem_.set_xattr(change);
  if (name == kXattrWriteMode) {
    const MutexLock lock(folder_modes_mutex_);
    folder_modes_.erase(node->file);
  }
  reply(request, done);
}

void Bridge::getxattr(fuse_req_t request, fuse_ino_t number, const char* name, std::size_t size) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.getxattr"));
  if (!is_stored_xattr(name)) return reply(request, fail(Code::kUnsupported, "mount.getxattr"));
  if (is_virtual(name)) {
    if (node->type != FileType::kRegular) {
      return reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
    }
    Attributes now = view(*node);
    std::string version = std::to_string(now.version);
    return reply_sized(request, name == kXattrVersion ? version : drain_name(now.drain), size);
  }
  if (std::string_view(name).starts_with(kXattrPolicy)) {
    return get_policy(request, *node, std::string_view(name).substr(kXattrPolicy.size()), size);
  }
  auto all = filesystem_.xattrs(node->file);
  if (!all) return reply(request, fail(all.error()));
  for (const auto& [key, value] : *all) {
    if (key == name) return reply_sized(request, value, size);
  }
  reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
}

Status Bridge::set_policy(const Node& node, std::string_view name, std::string_view value) {
  const auto setting = parse_setting(name, value);
  if (!setting) return fail(setting.error().code, "mount.setxattr");
  if (const auto problem = check_setting(*setting))
    return fail(problem->error.code, "mount.setxattr");
  return filesystem_.set_policy(node.file, Policy{{*setting}});
}

void Bridge::get_policy(fuse_req_t request, const Node& node, std::string_view name,
                        std::size_t size) {
  const auto policy = filesystem_.policy(node.file);
  if (!policy) return reply(request, fail(policy.error()));
  for (const PolicySetting& setting : policy->effective.settings) {
    if (policy_name(setting.key) == name) {
      return reply_sized(request, format_value(setting), size);
    }
  }
  reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
}

/// Lists the attributes that are stored. Leaves out virtual attributes, so that copies of a file do
/// not set them.
void Bridge::listxattr(fuse_req_t request, fuse_ino_t number, std::size_t size) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.listxattr"));
  auto all = filesystem_.xattrs(node->file);
  if (!all) return reply(request, fail(all.error()));
  std::string names;
  for (const auto& [key, value] : *all) {
    if (key.starts_with(kTrusted) && fuse_req_ctx(request)->uid != 0) continue;
    names += key;
    names += '\0';
  }
  reply_sized(request, names, size);
}

}  // namespace stdchk::mount
