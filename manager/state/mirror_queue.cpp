#include "manager/state/mirror_queue.h"

#include <algorithm>
#include <utility>

#include "manager/state/access_lists.h"

namespace stdchk::manager {

msg::MirrorChange& MirrorQueue::add(msg::MirrorKind kind, const File& file, std::string path,
                                    std::string other) {
  msg::MirrorChange change;
  change.kind = kind;
  change.path = std::move(path);
  change.other_path = std::move(other);
  change.file = file.id;
  change.number = ++newest_;
  change.mode = mode_without_list(file);
  change.uid = file.uid;
  change.gid = file.gid;
  change.mtime_ns = file.newest.mtime_ns;
  return changes_[newest_] = std::move(change);
}

void MirrorQueue::restore_newest(std::uint64_t number) { newest_ = std::max(newest_, number); }

}  // namespace stdchk::manager
