// Locks: flock(2) and fcntl(2).
#include <fcntl.h>
#include <sys/file.h>

#include <limits>

#include "fuse/file_requests.h"

namespace stdchk::mount {
namespace {

msg::LockKind kind_of(short type) {
  if (type == F_RDLCK) return msg::LockKind::kShared;
  return type == F_WRLCK ? msg::LockKind::kExclusive : msg::LockKind::kNone;
}

/// The kernel has made all ranges absolute. A length of 0 reaches to the end.
template <class Request>
void set_range(Request& request, const struct flock& lock) {
  request.first = static_cast<std::uint64_t>(lock.l_start);
  request.last = lock.l_len == 0 ? std::numeric_limits<std::uint64_t>::max()
                                 : request.first + static_cast<std::uint64_t>(lock.l_len) - 1;
}

}  // namespace

void FileRequests::setlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock,
                         bool sleep) {
  msg::SetLock wanted;
  wanted.space = msg::LockSpace::kRecord;
  wanted.kind = kind_of(lock.l_type);
  wanted.owner = info->lock_owner;
  wanted.pid = static_cast<std::uint32_t>(lock.l_pid);
  set_range(wanted, lock);
  locker_.set(request, handle_of(info), wanted, sleep);
}

void FileRequests::getlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock) {
  msg::GetLock wanted;
  wanted.space = msg::LockSpace::kRecord;
  wanted.kind = kind_of(lock.l_type);
  wanted.owner = info->lock_owner;
  set_range(wanted, lock);
  locker_.get(request, handle_of(info), wanted);
}

void FileRequests::flock(fuse_req_t request, fuse_file_info* info, int operation) {
  msg::SetLock wanted;
  wanted.space = msg::LockSpace::kFlock;
  const int kind = operation & ~LOCK_NB;
  if (kind == LOCK_SH) wanted.kind = msg::LockKind::kShared;
  if (kind == LOCK_EX) wanted.kind = msg::LockKind::kExclusive;
  wanted.owner = info->lock_owner;
  wanted.pid = static_cast<std::uint32_t>(fuse_req_ctx(request)->pid);
  wanted.last = std::numeric_limits<std::uint64_t>::max();
  locker_.set(request, handle_of(info), wanted, (operation & LOCK_NB) == 0);
}

}  // namespace stdchk::mount
