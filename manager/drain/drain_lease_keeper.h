#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/files/drain_lease.h"

namespace stdchk::manager {

/// A DrainLeaseKeeper holds the lease of the drain directory for this manager, as long as it lives,
/// and tries again and again while another pool has it.
///
/// Owns: a thread, which alone touches the file system, because storage may hang. The destructor
/// removes the lease. It leaves the thread behind when storage does not answer within a second.
/// Threads: any.
class DrainLeaseKeeper {
 public:
  /// As DrainLease has them.
  DrainLeaseKeeper(std::string directory, LeaseHolder own, bool inherits);
  ~DrainLeaseKeeper();
  DrainLeaseKeeper(const DrainLeaseKeeper&) = delete;
  DrainLeaseKeeper& operator=(const DrainLeaseKeeper&) = delete;

  /// Returns true unless another pool is known to hold the directory. So storage that hangs or is
  /// read-only does not count as another pool.
  bool may_drain() const;

  /// Waits until the first look has ended, and while another pool has the lease, for at most
  /// `patience`. Returns a sentence that names the holder if another pool still has it then.
  std::optional<std::string> wait(Duration patience) const;

 private:
  struct Shared;
  static void run(Shared& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace stdchk::manager
