// Attributes, extended attributes and the pool's space of the C interface.
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cstring>
#include <limits>
#include <string>

#include "client/library/errors.h"
#include "client/library/objects.h"
#include "client/library/paths.h"
#include "core/files/type_bits.h"

using namespace stdchk::client::library;
using stdchk::Attributes;
using stdchk::Code;
using stdchk::msg::SetMask;

namespace stdchk::client::library {

void show(const Attributes& attributes, struct stdchk_attributes& out) {
  out = {};
  out.id = attributes.id.value;
  out.mode = attributes.mode | type_bits(attributes.type);
  out.uid = attributes.uid;
  out.gid = attributes.gid;
  out.links = attributes.link_count;
  out.size_bytes = attributes.size_bytes;
  out.stored_bytes = attributes.stored_bytes;
  out.version = attributes.version;
  out.atime_ns = attributes.atime_ns;
  out.mtime_ns = attributes.mtime_ns;
  out.ctime_ns = attributes.ctime_ns;
  out.drain_state = static_cast<std::int32_t>(attributes.drain);
}

}  // namespace stdchk::client::library

namespace {

static_assert(STDCHK_DRAIN_NONE == static_cast<int>(stdchk::DrainState::kNone));
static_assert(STDCHK_DRAIN_PENDING == static_cast<int>(stdchk::DrainState::kPending));
static_assert(STDCHK_DRAIN_RUNNING == static_cast<int>(stdchk::DrainState::kRunning));
static_assert(STDCHK_DRAIN_DONE == static_cast<int>(stdchk::DrainState::kDrained));
static_assert(STDCHK_DRAIN_FAILED == static_cast<int>(stdchk::DrainState::kFailed));

constexpr std::uint32_t bit(SetMask mask) { return static_cast<std::uint32_t>(mask); }

int stat_path(stdchk_pool* pool, const char* path, LastLink last, struct stdchk_attributes* out) {
  const auto found = find(*pool->filesystem, path, last);
  if (!found) return failed(found.error());
  show(*found, *out);
  return 0;
}

/// Sends a change of attributes; `change` needs no file yet.
int change_attributes(stdchk_pool* pool, const char* path, LastLink last,
                      stdchk::msg::SetAttributes change) {
  const auto found = find(*pool->filesystem, path, last);
  if (!found) return failed(found.error());
  change.file = found->id;
  const auto changed = pool->filesystem->set_attributes(change);
  return changed ? 0 : failed(changed.error());
}

int change_owner(stdchk_pool* pool, const char* path, LastLink last, uid_t uid, gid_t gid) {
  stdchk::msg::SetAttributes change;
  if (uid != static_cast<uid_t>(-1)) change.mask |= bit(SetMask::kUid);
  if (gid != static_cast<gid_t>(-1)) change.mask |= bit(SetMask::kGid);
  change.uid = uid;
  change.gid = gid;
  return change_attributes(pool, path, last, change);
}

int change_times(stdchk_pool* pool, const char* path, LastLink last, int64_t atime_ns,
                 int64_t mtime_ns) {
  constexpr auto kStays = std::numeric_limits<int64_t>::min();
  stdchk::msg::SetAttributes change;
  if (atime_ns != kStays) change.mask |= bit(SetMask::kAtime);
  if (mtime_ns != kStays) change.mask |= bit(SetMask::kMtime);
  change.atime_ns = atime_ns;
  change.mtime_ns = mtime_ns;
  return change_attributes(pool, path, last, change);
}

/// Copies an answer as getxattr(2) does. `size` 0 asks for the length only.
ssize_t give(const std::string& answer, void* to, size_t size) {
  if (size == 0) return static_cast<ssize_t>(answer.size());
  if (answer.size() > size) {
    return failed(Code::kRange, "stdchk: the buffer is too small for the answer.");
  }
  std::memcpy(to, answer.data(), answer.size());
  return static_cast<ssize_t>(answer.size());
}

}  // namespace

extern "C" {

int stdchk_stat(stdchk_pool* pool, const char* path, struct stdchk_attributes* out) {
  return stat_path(pool, path, LastLink::kFollow, out);
}

int stdchk_lstat(stdchk_pool* pool, const char* path, struct stdchk_attributes* out) {
  return stat_path(pool, path, LastLink::kStay, out);
}

int stdchk_fstat(stdchk_file* file, struct stdchk_attributes* out) {
  show(file->file->attributes(), *out);
  return 0;
}

int stdchk_chmod(stdchk_pool* pool, const char* path, mode_t mode) {
  stdchk::msg::SetAttributes change;
  change.mask = bit(SetMask::kMode);
  change.mode = mode & 07777;
  return change_attributes(pool, path, LastLink::kFollow, change);
}

int stdchk_chown(stdchk_pool* pool, const char* path, uid_t uid, gid_t gid) {
  return change_owner(pool, path, LastLink::kFollow, uid, gid);
}

int stdchk_lchown(stdchk_pool* pool, const char* path, uid_t uid, gid_t gid) {
  return change_owner(pool, path, LastLink::kStay, uid, gid);
}

int stdchk_utimens(stdchk_pool* pool, const char* path, int64_t atime_ns, int64_t mtime_ns) {
  return change_times(pool, path, LastLink::kFollow, atime_ns, mtime_ns);
}

int stdchk_lutimens(stdchk_pool* pool, const char* path, int64_t atime_ns, int64_t mtime_ns) {
  return change_times(pool, path, LastLink::kStay, atime_ns, mtime_ns);
}

ssize_t stdchk_getxattr(stdchk_pool* pool, const char* path, const char* name, void* value,
                        size_t size) {
  const auto found = find(*pool->filesystem, path, LastLink::kFollow);
  if (!found) return failed(found.error());
  const auto all = pool->filesystem->xattrs(found->id);
  if (!all) return failed(all.error());
  for (const auto& [each, content] : *all) {
    if (each == name) return give(content, value, size);
  }
  return failed(Code::kNoAttribute, "stdchk_getxattr: there is no such extended attribute.");
}

int stdchk_setxattr(stdchk_pool* pool, const char* path, const char* name, const void* value,
                    size_t size, int flags) {
  const auto found = find(*pool->filesystem, path, LastLink::kFollow);
  if (!found) return failed(found.error());
  stdchk::msg::SetXattr change;
  change.file = found->id;
  change.name = name;
  change.value.assign(static_cast<const char*>(value), size);
  if (flags == XATTR_CREATE) change.mode = stdchk::msg::XattrMode::kCreate;
  if (flags == XATTR_REPLACE) change.mode = stdchk::msg::XattrMode::kReplace;
  return ended(pool->filesystem->set_xattr(change));
}

ssize_t stdchk_listxattr(stdchk_pool* pool, const char* path, char* names, size_t size) {
  const auto found = find(*pool->filesystem, path, LastLink::kFollow);
  if (!found) return failed(found.error());
  const auto all = pool->filesystem->xattrs(found->id);
  if (!all) return failed(all.error());
  std::string list;
  for (const auto& [name, content] : *all) list.append(name).push_back('\0');
  return give(list, names, size);
}

int stdchk_removexattr(stdchk_pool* pool, const char* path, const char* name) {
  const auto found = find(*pool->filesystem, path, LastLink::kFollow);
  if (!found) return failed(found.error());
  stdchk::msg::SetXattr change;
  change.file = found->id;
  change.name = name;
  change.remove = true;
  return ended(pool->filesystem->set_xattr(change));
}

int stdchk_statfs(stdchk_pool* pool, struct stdchk_space* out) {
  const auto stat = pool->filesystem->stat_pool();
  if (!stat) return failed(stat.error());
  *out = {};
  out->total_bytes = stat->total_bytes;
  out->free_bytes = stat->free_bytes;
  out->evictable_bytes = stat->evictable_bytes;
  out->logical_bytes = stat->logical_bytes;
  out->stored_bytes = stat->stored_bytes;
  out->files = stat->file_count;
  out->drain_pending_files = stat->drain_pending_files;
  out->drain_pending_bytes = stat->drain_pending_bytes;
  out->drain_failed_files = stat->drain_failed_files;
  out->debt_bytes = stat->debt_bytes;
  return 0;
}

}  // extern "C"
