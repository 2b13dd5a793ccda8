#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/runtime/reactor.h"
#include "manager/drain/file_fingerprint.h"

namespace stdchk::manager {

/// A DrainedFingerprints takes the fingerprints of files in the drain directory, on the manager's
/// host.
///
/// Owns: a thread, which alone touches the file system, because storage may hang. The destructor
///   leaves the thread behind when storage does not answer within a second.
/// Threads: the reactor's.
/// Errors: a file that cannot be looked at has an unknown fingerprint.
class DrainedFingerprints {
 public:
  /// Gets one fingerprint for each path, or nothing when storage did not answer in time.
  using Done = std::function<void(const std::optional<std::vector<FileFingerprint>>& fingerprints)>;

  DrainedFingerprints(Reactor& reactor, std::string directory);
  ~DrainedFingerprints();
  DrainedFingerprints(const DrainedFingerprints&) = delete;
  DrainedFingerprints& operator=(const DrainedFingerprints&) = delete;

  /// Looks at files by their paths below the drain directory. Calls `done` once, later, and within
  /// `limit`.
  void read(std::vector<std::string> paths, Duration limit, Done done);

 private:
  struct Shared;
  struct Waiting {
    Done done;
    TimerId timer;
  };
  static void run(const std::shared_ptr<Shared>& shared);
  void finish(std::uint64_t number,
              const std::optional<std::vector<FileFingerprint>>& fingerprints);

  Reactor& reactor_;
  const std::shared_ptr<Shared> shared_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t looks_made_ = 0;
  std::thread thread_;
};

}  // namespace stdchk::manager
