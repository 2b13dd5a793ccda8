#include "fuse/attribute_requests.h"

#include <algorithm>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"

namespace stdchk::mount {

void AttributeRequests::getattr(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.getattr"));
  if (node->type != FileType::kRegular) {
    auto now = filesystem_.attributes(node->file);
    // A directory may be open after it was removed or replaced through this mount.
    if (!now && !node->unlinked) return reply(request, fail(now.error()));
    if (now) {
      const WriterLock lock(node->mutex);
      node->last = *now;
    }
    struct stat out = stat_of(Entries::view(*node, now));
    fuse_reply_attr(request, &out, kCacheSeconds);
    return;
  }
  const auto in_pool = filesystem_.attributes(node->file);
  if (in_pool) follower_.look(node, *in_pool);
  struct stat out = stat_of(Entries::view(*node, in_pool));
  fuse_reply_attr(request, &out, kCacheSeconds);
}

/// Truncates the file. Without an open session, this is a session of its own: open, truncate,
/// commit.
Status AttributeRequests::truncate(const NodePtr& node, Handle* handle, std::uint64_t size) {
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
  cache_.expire_node(*node);
  return {};
}

Status AttributeRequests::change(const NodePtr& node, const msg::SetAttributes& change) {
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

void AttributeRequests::setattr(fuse_req_t request, fuse_ino_t number, struct stat* wanted,
                                int mask, fuse_file_info* info) {
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
  // The same rules as for writes. A process with CAP_FSETID keeps the bits at a truncation, but not
  // at a chown. Only a directory keeps them then: FIFOs, sockets and devices lose them, too.
  bool kills = set_id_.must_clear(request, info != nullptr ? &handle_of(info) : nullptr);
  bool changes_owner = (mask & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) != 0;
  bool truncates = (mask & FUSE_SET_ATTR_SIZE) != 0;
  if (node->type != FileType::kDirectory && (changes_owner || (truncates && kills))) {
    set_id_.clear(*node, request);
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
    Status done = this->change(node, change);
    const bool gone = !done && is_gone(done.error());
    // Only this node still has the attributes of an unlinked open file. The kernel also flushes the
    // times of a file that it unlinks or replaces. If that failed, the kernel would fail the next
    // write to the inode.
    bool flushes_times = (mask & ~(FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME)) == 0;
    bool nameless = gone && (node->unlinked || flushes_times);
    if (!done && !nameless) return reply(request, done);
  }
  struct stat out = stat_of(entries_.view(*node));
  fuse_reply_attr(request, &out, kCacheSeconds);
}

void AttributeRequests::statfs(fuse_req_t request) {
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

}  // namespace stdchk::mount
