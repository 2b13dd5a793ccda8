#pragma once

#include <functional>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/values/types.h"
#include "manager/clients/notices.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_planner.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// DrainChecks asks a benefactor whether drained files are still in the drain directory, unchanged,
/// before something relies on them: `stdchk safe`, and eviction (rule M5). A file that was removed
/// or changed there becomes undrained if memory has some of its bytes. Then it is drained again.
///
/// Threads: the reactor's.
/// Limits: a change after the check goes unnoticed. So does a change that restores the file's size
/// and modification time.
class DrainChecks {
 public:
  struct Found {
    std::set<FileId> there;
    std::set<FileId> missing;  ///< removed or changed since they were drained
  };
  /// Gets an error when the check could not be made.
  using Done = std::function<void(const Result<Found>& found)>;

  DrainChecks(Pool& pool, const DrainPlanner& drain, CopyPlanner& copies, Notices& notices)
      : pool_(pool), drain_(drain), copies_(copies), notices_(notices) {}
  /// Checks those of `files` that are drained and have no change of name under way. A file that the
  /// pool changes meanwhile is in neither set of the result. At most limits::kDrainChecksMax files.
  /// Calls `done` once, perhaps within this call.
  void look_up(const std::vector<FileId>& files, Time deadline, Done done);

 private:
  struct Looked {
    FileId file;
    Version version = 0;
    msg::FindDrained::Wanted wanted;
  };
  Found judge(const std::vector<Looked>& looked, const std::vector<std::uint32_t>& missing);
  void lose(const File& file);

  Pool& pool_;
  const DrainPlanner& drain_;
  CopyPlanner& copies_;
  Notices& notices_;
};

}  // namespace stdchk::manager
