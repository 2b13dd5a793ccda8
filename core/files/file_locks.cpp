#include "core/files/file_locks.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace stdchk {
namespace {

bool overlap(const FileLock& a, const FileLock& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// True when `b` begins right behind `a`.
bool joins(const FileLock& a, const FileLock& b) {
  return a.last != std::numeric_limits<std::uint64_t>::max() && a.last + 1 == b.first;
}

}  // namespace

bool excludes(const FileLock& held, const FileLock& wanted) {
  return held.owner != wanted.owner && overlap(held, wanted) &&
         (held.kind == msg::LockKind::kExclusive || wanted.kind == msg::LockKind::kExclusive);
}

void FileLocks::cut(const FileLock& range) {
  std::vector<FileLock> left;
  left.reserve(locks_.size() + 1);
  for (const FileLock& lock : locks_) {
    if (lock.owner != range.owner || !overlap(lock, range)) {
      left.push_back(lock);
      continue;
    }
    if (lock.first < range.first) {
      left.push_back(lock);
      left.back().last = range.first - 1;
    }
    if (lock.last > range.last) {
      left.push_back(lock);
      left.back().first = range.last + 1;
    }
  }
  locks_ = std::move(left);
}

void FileLocks::put(const FileLock& lock) {
  cut(lock);
  FileLock joined = lock;
  std::erase_if(locks_, [&](const FileLock& other) {
    if (other.owner != joined.owner || other.kind != joined.kind) return false;
    if (joins(other, joined)) {
      joined.first = other.first;
    } else if (joins(joined, other)) {
      joined.last = other.last;
    } else {
      return false;
    }
    return true;
  });
  locks_.push_back(joined);
}

void FileLocks::drop(ClientId client) {
  std::erase_if(locks_, [&](const FileLock& lock) { return lock.owner.client == client; });
}

}  // namespace stdchk
