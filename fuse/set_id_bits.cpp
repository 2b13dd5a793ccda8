#include "fuse/set_id_bits.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "core/base/log.h"
#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

/// Without the group's x bit a file keeps S_ISGID for members of its group (inode_owner_or_capable
/// and setattr_should_drop_sgid in the kernel).
bool is_of_group(fuse_req_t request, std::uint32_t gid) {
  if (request == nullptr || fuse_req_ctx(request)->gid == gid) return true;
  std::array<gid_t, 256> groups{};
  const int count = fuse_req_getgroups(request, static_cast<int>(groups.size()), groups.data());
  const auto end = groups.begin() + std::clamp<int>(count, 0, static_cast<int>(groups.size()));
  return std::find(groups.begin(), end, gid) != end;
}

}  // namespace

bool SetIdBits::must_clear(fuse_req_t request, const Handle* handle) const {
  if (const auto kills = exchange_.kills_set_id()) return *kills;
  return fuse_req_ctx(request)->uid != 0 || (handle != nullptr && handle->of_user);
}

bool SetIdBits::clear_once(Node& node, fuse_req_t request) {
  if (node.set_id_killed.load(std::memory_order_relaxed)) return false;
  return !node.set_id_killed.exchange(true) && clear(node, request);
}

void SetIdBits::clear_at_commit(Node& node) {
  if (node.set_id_killed.exchange(false)) clear(node, nullptr);
}

/// Removes set-ID bits after a write, so that no program with changed content runs as the file's
/// owner or group. With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves this to the file system. Without
/// a request: at a commit.
bool SetIdBits::clear(Node& node, fuse_req_t request) {
  const auto now = filesystem_.attributes(node.file);
  if (!now) return false;
  {
    // An open file may still have the mode of its open.
    const WriterLock lock(node.mutex);
    node.last.mode = now->mode;
  }
  const auto set = now->mode & static_cast<std::uint32_t>(S_ISUID | S_ISGID);
  std::uint32_t drops = set & static_cast<std::uint32_t>(S_ISUID);
  // As on file systems of the kernel, a chown() by root leaves S_ISGID of any group. For a chown(),
  // the kernel does not say whether the caller has CAP_FSETID.
  const bool is_root = request != nullptr && fuse_req_ctx(request)->uid == 0;
  const bool drops_group =
      (now->mode & S_IXGRP) != 0 || !(is_root || is_of_group(request, now->gid));
  if (drops_group) drops |= set & static_cast<std::uint32_t>(S_ISGID);
  return drop(node, now->mode, drops);
}

void SetIdBits::clear_of_group(Node& node, fuse_req_t request) {
  const auto now = filesystem_.attributes(node.file);
  if (!now || (now->mode & S_ISGID) == 0) return;
  if (fuse_req_ctx(request)->uid == 0 || is_of_group(request, now->gid)) return;
  drop(node, now->mode, S_ISGID);
}

/// Takes the bits `drops` off the mode of the file.
bool SetIdBits::drop(Node& node, std::uint32_t mode, std::uint32_t drops) {
  if (drops == 0) return false;
  msg::SetAttributes change;
  change.file = node.file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  change.mode = mode & ~drops;
  const auto done = filesystem_.set_attributes(change);
  if (!done) {
    log::warning("Clearing set-id bits failed: {}", describe(done.error()));
    return false;
  }
  const WriterLock lock(node.mutex);
  node.last.mode = change.mode;
  return true;
}

}  // namespace stdchk::mount
