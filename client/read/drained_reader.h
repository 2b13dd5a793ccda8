#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/net/shared.h"
#include "client/read/drained_storage.h"
#include "client/read/file_threads.h"
#include "client/read/version_map.h"
#include "core/base/clock.h"
#include "core/base/result.h"

namespace stdchk::client {

/// A DrainedReader opens and reads files of the drain directory on the threads of a FileExecutor.
///
/// Files of the drain directory may hang. After kHangsAfter a read counts as hanging. After
/// kGivesUpAfter it counts as late, and its caller should drop it. A read that waits for a thread
/// is late when a read of the same user hangs.
///
/// Owns: the reads under way. A read that hangs stays after its caller has dropped it.
/// Threads: any, with the engine's lock held.
/// Errors: in Outcome. kCorrupt: the file was replaced or changed after the drain.
class DrainedReader {
 public:
  static constexpr Duration kHangsAfter = std::chrono::seconds(5);
  static constexpr Duration kGivesUpAfter = std::chrono::seconds(20);
  static constexpr std::size_t kWaitsMax = 256;

  struct Host {
    Shared& shared;
    const Clock& clock;
    std::function<void(FileWork)> read_later;  ///< lock held
    std::string directory;                     ///< empty: there are no drained files
  };
  /// An Outcome is the result of an open or a read on a thread.
  struct Outcome {
    std::vector<std::byte> bytes;         ///< of read()
    std::shared_ptr<DrainedFile> opened;  ///< of open(); nullptr: not there, or `refused`
    std::string refused;                  ///< why the file was not opened; was logged
    Status status;                        ///< of read()
  };
  /// Called once with the lock held, unless the read was dropped before.
  using Done = std::function<void(Lock& lock, Outcome& outcome)>;
  struct Read;
  using ReadPtr = std::shared_ptr<Read>;
  struct Range {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
  };

  explicit DrainedReader(Host host);

  const std::string& directory() const { return host_.directory; }
  /// Opens `path` of the drain directory, if it belongs to the pool's user `owner`.
  ReadPtr open(std::uint32_t owner, const std::string& path, DrainState state, Done done)
      STDCHK_REQUIRES(engine_lock);
  /// Reads a range. With `part_of`, the range is a part of that chunk and is checked.
  ReadPtr read(std::uint32_t owner, std::shared_ptr<DrainedFile> file, const Range& range,
               std::shared_ptr<DrainedChunk> part_of, Done done) STDCHK_REQUIRES(engine_lock);
  /// Drops the read's outcome, because no caller waits for it.
  static void drop(Read& read) STDCHK_REQUIRES(engine_lock);

  /// True when a file of that user in the drain directory hangs.
  bool hangs(std::uint32_t owner) const STDCHK_REQUIRES(engine_lock);
  bool is_late(const Read& read) const STDCHK_REQUIRES(engine_lock);
  /// Returns a read that hangs, of another user, which its caller still waits for; or nullptr.
  ReadPtr find_hanging_read_of_others(std::uint32_t owner) const STDCHK_REQUIRES(engine_lock);

  /// A Wait counts one call that reads, for as long as it lives.
  ///
  /// Threads: made and destroyed with the engine's lock held.
  class Wait {
   public:
    Wait(DrainedReader& reader, std::uint32_t owner) STDCHK_REQUIRES(engine_lock);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    /// Fails a call on a file of a user whose files hang, when that user has more calls than
    /// all calls leave free of kWaitsMax. A mount's threads serve all users.
    Status check() const STDCHK_REQUIRES(engine_lock);
    /// Returns `status`. If the deadline ended a wait for files that hang, returns an input error.
    Status end(Status status) const STDCHK_REQUIRES(engine_lock);

   private:
    DrainedReader& reader_;
    const std::uint32_t owner_;
  };

 private:
  ReadPtr begin(std::uint32_t owner, Done done) STDCHK_REQUIRES(engine_lock);
  std::function<void()> delivery(const ReadPtr& read);
  void note_refused(const std::string& why) STDCHK_REQUIRES(engine_lock);

  const Host host_;
  const std::shared_ptr<DrainedStorage> storage_;
  std::list<ReadPtr> reads_ STDCHK_GUARDED_BY(engine_lock);
  std::map<std::uint32_t, std::size_t> waits_ STDCHK_GUARDED_BY(engine_lock);  ///< by owner
  std::size_t wait_count_ STDCHK_GUARDED_BY(engine_lock) = 0;
  Time said_refused_ STDCHK_GUARDED_BY(engine_lock){};
};

/// The error of reads that would wait for a drain directory that does not answer.
inline constexpr Error kDrainedSilent{
    Code::kSystem, 0,
    "client.read: the drain directory does not answer in time; look at its file system"};

}  // namespace stdchk::client
