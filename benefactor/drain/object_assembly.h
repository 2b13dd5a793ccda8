#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benefactor/drain/staged_pieces.h"
#include "benefactor/memory/stop.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/problem.h"
#include "core/base/rate_limiter.h"
#include "core/objects/object_attributes.h"
#include "core/objects/object_store.h"

namespace stdchk::benefactor {

/// A StagingNote is an object beside the staged pieces of one attempt.
struct StagingNote {
  std::string nonce;  ///< random; part of ObjectAttributes::attempt
  std::size_t staged_count = 0;
};
/// Returns nothing when there is no note.
Outcome<std::optional<StagingNote>> read_note(ObjectStore& store, const std::string& staging,
                                              Time deadline);
/// Returns the name of an attempt. FILE.NUMBER alone is not enough: another pool may have used it.
std::string attempt_name(const std::string& file_and_number, const std::string& nonce);

/// An ObjectAssembly makes the object of one file of its staged pieces, or of another object.
///
/// A short file is one request. A long file is an upload of parts, several at once. The id of the upload is kept as an object beside the staged pieces. So after a crash, any benefactor
/// continues the same upload. The object gets its name when all parts are there (rule M6).
///
/// A StagingNote says how many staged objects there were when the first assembly began. With fewer,
/// the removal of staged objects has begun: the rest is no whole file.
///
/// Owns: the list of pieces and parts. Threads: one call at a time.
/// Errors: kDeadline: call run() again; nothing that was uploaded is uploaded again. EILSEQ: pieces
///   do not match their checksums.
/// Limits: a part has at least kPartBytes; kBufferBytes for parts under way, and at least 1 part.
class ObjectAssembly {
 public:
  static constexpr std::uint64_t kPartBytes = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kBufferBytes = std::uint64_t{64} << 20;

  /// The storage and its limits. All outlive the assembly.
  struct Means {
    ObjectStore& store;
    const Clock& clock;
    RateLimiter& limiter;
    Stop& stop;
    std::size_t threads = 1;
  };
  struct Goal {
    std::string key;
    std::uint64_t size_bytes = 0;
    ObjectAttributes attributes;  ///< `attempt` is FILE.NUMBER
    std::string staging;      ///< begin of the keys of the staged objects, with a slash at its end
    std::string source;       ///< copies this object; empty: uses the staged objects
    std::string source_etag;  ///< of the version that is copied
    ObjectMetadata metadata;  ///< of a copy; `attributes` are not used then
    /// Returns true if an assembly of the other goal makes the same object.
    bool is_same(const Goal& other) const;
  };

  explicit ObjectAssembly(Goal goal) : goal_(std::move(goal)) {}
  const Goal& goal() const { return goal_; }
  /// The attempt_name() of the object, after run().
  const std::string& attempt() const { return attributes_.attempt; }

  /// Makes the object. ENOENT: nothing is staged.
  Outcome<void> run(const Means& means, Time deadline);

  static std::uint64_t part_bytes_of(std::uint64_t size_bytes);

 private:
  struct Window;
  Outcome<void> load(const Means& means, Time deadline);
  Outcome<void> load_copy();
  ObjectMetadata metadata() const;
  Outcome<void> note(const Means& means, std::size_t staged_count, Time deadline);
  Outcome<void> sort_pieces();
  void compute_crcs();
  Outcome<void> begin(const Means& means, Time deadline);
  Outcome<bool> resume(const Means& means, Time deadline);
  Outcome<void> upload(const Means& means, Time deadline);
  Outcome<void> upload_part(const Means& means, std::uint32_t number, Time deadline);
  Outcome<void> complete(const Means& means, Time deadline);
  void end_other_uploads(const Means& means, Time deadline) const;
  Outcome<void> fill(const Means& means, Window& window, Time deadline) const;
  Outcome<void> read_run(const Means& means, std::size_t first, std::size_t end, Window& window,
                         Time deadline) const;

  const Goal goal_;
  ObjectAttributes attributes_;
  bool loaded_ = false;
  std::vector<std::string> sources_;
  std::vector<StagedPiece> pieces_;     ///< in the order of their offsets
  std::vector<std::size_t> by_source_;  ///< indexes of pieces_, in the order of source and place
  std::optional<ObjectStore::Upload> upload_;
  Mutex mutex_;
  std::map<std::uint32_t, ObjectStore::Part> parts_ STDCHK_GUARDED_BY(mutex_);
};

/// Returns the upload that was noted beside the staged objects; nothing when there is none.
Outcome<std::optional<ObjectStore::Upload>> read_upload(ObjectStore& store,
                                                        const std::string& staging, Time deadline);
/// Removes the staged objects below `staging`, and the note of their upload.
Outcome<void> drop_staged(ObjectStore& store, const std::string& staging, std::size_t threads,
                          Time deadline);
/// Ends the upload that is noted there, and removes the staged objects.
Outcome<void> abandon_staged(ObjectStore& store, const std::string& staging, std::size_t threads,
                             Time deadline);

}  // namespace stdchk::benefactor
