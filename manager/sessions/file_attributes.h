#pragma once

#include "core/values/types.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A FileAttributes makes the attributes that clients see, from the state and the drain's progress.
///
/// Threads: the reactor's.
class FileAttributes {
 public:
  FileAttributes(const Pool& pool, const DrainPlanner& drain) : pool_(pool), drain_(drain) {}
  Attributes of(const File& file, const VersionData& version) const;
  Attributes of(const File& file) const { return of(file, file.newest); }
  /// Returns attributes without an id when the file does not exist any more.
  Attributes of_id(FileId id) const {
    const File* file = pool_.state().file(id);
    return file == nullptr ? Attributes{} : of(*file);
  }

 private:
  const Pool& pool_;
  const DrainPlanner& drain_;
};

}  // namespace stdchk::manager
