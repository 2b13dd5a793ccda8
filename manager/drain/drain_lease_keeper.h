#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/files/drain_lease.h"

namespace stdchk::manager {

/// A DrainLeaseKeeper holds the lease of the drain directory for this manager. It retries
/// every 500 ms while another pool has the lease.
///
/// Owns: a thread, which alone touches the file system, because storage may hang. The destructor
/// removes the lease. It leaves the thread behind when storage does not answer within a second.
/// Threads: any.
class DrainLeaseKeeper {
 public:
  explicit DrainLeaseKeeper(std::unique_ptr<LeaseSteps> lease);
  ~DrainLeaseKeeper();
  DrainLeaseKeeper(const DrainLeaseKeeper&) = delete;
  DrainLeaseKeeper& operator=(const DrainLeaseKeeper&) = delete;

  /// Returns true unless another pool is known to hold the directory. So storage that hangs or is
  /// read-only does not count as another pool.
  bool may_drain() const;

  /// Waits for the first look at the lease, then at most `patience` for the end of another pool's
  /// lease. Returns a sentence that names the holder if another pool still has the lease.
  std::optional<std::string> wait(Duration patience) const;

 private:
  struct Shared;
  static void run(Shared& shared);

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

/// Makes the lease of the drain directory or object store `drain`. `own` and `inherits` are as in
/// DrainLease. Does not block.
std::unique_ptr<LeaseSteps> make_lease(const std::string& drain, LeaseHolder own, bool inherits);

}  // namespace stdchk::manager
