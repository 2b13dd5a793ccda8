#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/values/types.h"
#include "manager/clients/notices.h"
#include "manager/drain/drain_planner.h"
#include "manager/drain/drained_verifier.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_planner.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// DrainChecks asks a benefactor whether drained files are still in the drain directory, unchanged,
/// before something relies on them: `stdchk safe`, and eviction (rule M5). A file that was removed
/// or changed there becomes undrained if memory has some of its bytes. Then it is drained again.
///
/// A file with the right size and time may still be another file. So the manager's host compares
/// its fingerprint, too. A file with another fingerprint is read and compared (DrainedVerifier).
///
/// Threads: the reactor's.
/// Limits: a change after the check goes unnoticed. Fingerprints are not compared of files that the
///   manager's host cannot look at.
class DrainChecks {
 public:
  struct Found {
    std::set<FileId> there;
    std::set<FileId> missing;  ///< removed or changed since they were drained
  };
  /// Gets an error when the check could not be made.
  using Done = std::function<void(const Result<Found>& found)>;

  DrainChecks(Pool& pool, const DrainPlanner& drain, CopyPlanner& copies, Notices& notices,
              KnownFingerprints& fingerprints)
      : pool_(pool),
        drain_(drain),
        copies_(copies),
        notices_(notices),
        fingerprints_(fingerprints),
        verifier_(pool, drain, fingerprints) {}
  /// An Unknown says what to do with files whose fingerprint is not known, as after a restart. The
  /// fingerprint of a file that is not compared stays unknown.
  enum class Unknown : std::uint8_t {
    kIsCompared,          ///< with checksums, even when memory lacks the file's bytes
    kIsComparedInMemory,  ///< with checksums, when memory has bytes of the file
    kIsBelieved,          ///< the right size and time are enough
  };
  /// Checks those of `files` that are drained and have no change of name under way. A file that the
  /// pool changes meanwhile is in neither set of the result. At most limits::kDrainChecksMax files.
  /// Calls `done` once, perhaps within this call.
  void look_up(const std::vector<FileId>& files, Unknown unknown, Time deadline, Done done);

 private:
  struct Looked {
    FileId file;
    Version version = 0;
    msg::FindDrained::Wanted wanted;
  };
  struct Waiting;
  static bool is_believed_unknown(const File& file, Unknown unknown);
  Found judge(const std::vector<Looked>& looked, const std::vector<std::uint32_t>& missing);
  void check_fingerprints(std::vector<Looked> looked, const std::shared_ptr<Waiting>& waiting);
  void compare_fingerprints(const std::vector<Looked>& looked,
                            const std::vector<FileFingerprint>& fingerprints,
                            const std::shared_ptr<Waiting>& waiting);
  void verified(const Looked& looked, DrainedVerifier::Verdict verdict, Waiting& waiting);
  void drain_again_or_report_loss(const File& file);

  Pool& pool_;
  const DrainPlanner& drain_;
  CopyPlanner& copies_;
  Notices& notices_;
  KnownFingerprints& fingerprints_;
  DrainedVerifier verifier_;
};

}  // namespace stdchk::manager
