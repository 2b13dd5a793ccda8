#include "manager/state/commit_lists.h"

namespace stdchk::manager {
namespace {

bool is_listed(const File& file) {
  return file.parent && file.type == FileType::kRegular && file.newest.version > 0;
}

}  // namespace

void CommitLists::add(const File& file) {
  if (!is_listed(file)) return;
  if (!file.newest.drained) {
    undrained_.emplace(file.newest.sequence, file.id);
    if (file.newest.stored_bytes > 0) ++undrained_like(file.newest);
  } else if (!file.newest.evicted) {
    evictable_.emplace(file.newest.sequence, file.id);
  }
  logical_bytes_ += file.newest.size_bytes;
}

void CommitLists::remove(const File& file) {
  if (!is_listed(file)) return;
  const bool was_undrained = undrained_.erase({file.newest.sequence, file.id}) > 0;
  if (was_undrained && file.newest.stored_bytes > 0) --undrained_like(file.newest);
  evictable_.erase({file.newest.sequence, file.id});
  logical_bytes_ -= file.newest.size_bytes;
}

}  // namespace stdchk::manager
