#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/messages/messages.h"
#include "manager/drain/drain_planner.h"
#include "manager/drain/known_fingerprints.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A DrainedVerifier has benefactors read drained files with an unknown fingerprint, and compare
/// them with the checksums of their chunks. Right bytes make the new fingerprint known.
///
/// Threads: the reactor's.
/// Limits: one file at a time; the others wait. Parts of chunks have no checksums. A file with such
///   parts counts as changed while memory has all bytes of the file, and is drained again.
///   Without these bytes, parts are not compared. Holes and bytes without a checksum never are.
class DrainedVerifier {
 public:
  enum class Verdict : std::uint8_t {
    kSame,
    kChanged,
    kUnknown,  ///< no benefactor or no storage answered, or the file changes now
  };
  using Done = std::function<void(Verdict)>;

  DrainedVerifier(Pool& pool, const DrainPlanner& drain, KnownFingerprints& fingerprints)
      : pool_(pool), drain_(drain), fingerprints_(fingerprints) {}
  /// Compares the file's newest version with its drained file, which had the fingerprint `seen`.
  /// Calls `done` once, perhaps within this call. Calls for a file that is under way share its
  /// verdict.
  void verify(FileId file, const FileFingerprint& seen, Done done);

 private:
  struct Job {
    FileId file;
    Version version = 0;
    FileFingerprint seen;
    std::string path;
    std::uint32_t next = 0;  ///< the slice to compare next
    std::vector<Done> done;
  };
  void step();
  msg::DrainPieces next_pieces(const File& file, Job& job) const;
  void compared(const rpc::Answer& answer);
  void check_file_again();
  void end(Verdict verdict);
  const File* current() const;

  Pool& pool_;
  const DrainPlanner& drain_;
  KnownFingerprints& fingerprints_;
  std::deque<Job> jobs_;  ///< the first one is under way
};

}  // namespace stdchk::manager
