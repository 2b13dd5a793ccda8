#pragma once

#include <functional>
#include <set>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/result.h"
#include "core/types.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;
struct File;

/// DrainChecks have a benefactor look whether drained files are in the drain directory as they were
/// drained, before somebody relies on that: `stdchk safe`, and the eviction (rule M5). What was
/// removed or changed there is to be drained again, as far as it is in memory.
///
/// Threads: the reactor's.
/// Limits: what is done to a file after the look is not noticed. One that was changed and then
/// given
///   its size and its time again is taken for the one that was drained.
class DrainChecks {
 public:
  struct Found {
    std::set<FileId> there;
    std::set<FileId> missing;  ///< not as they were drained
  };
  /// An error when it could not be found out.
  using Done = std::function<void(const Result<Found>& found)>;

  explicit DrainChecks(Service& service) : service_(service) {}
  /// Looks up those of the files that are drained and whose names are not being changed; what is
  /// changed in the pool meanwhile is neither there nor missing. At most limits::kDrainChecksMax.
  /// `done` is called once, perhaps within this call.
  void look_up(const std::vector<FileId>& files, Time deadline, Done done);

 private:
  struct Looked {
    FileId file;
    Version version = 0;
    msg::FindDrained::Wanted wanted;
  };
  Found judge(const std::vector<Looked>& looked, const std::vector<std::uint32_t>& missing);
  void lose(const File& file);

  Service& service_;
};

}  // namespace stdchk::manager
