#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/demand.h"
#include "fork/multicast/meeting.h"

namespace stdchk::multicast {

/// A Fetcher reads parts of the image that a sender has (send()), when a program wants them. Hosts
/// that read the same parts at about the same time get them by one multicast. Parts that only other
/// hosts read are kept for a while.
///
/// When the sender is silent, the Fetcher says hello again. A restarted sender of the same image at
/// the same address continues to serve it.
///
/// Owns: a thread, the sockets, and up to kUnitsKept units that nobody here has read yet.
/// Threads: open(), open_later() and the destructor: one; read(): any, several at a time.
/// Errors: kDeadline: the sender has not sent the bytes within the patience. When the sender was
///   silent for the patience, reads fail at once until it answers. Bytes that the root does not
///   prove are never returned.
/// Limits: the digests of all units are in memory, 1/512 of the image.
class Fetcher {
 public:
  static constexpr std::size_t kUnitsKept = 2048;

  /// Meets the sender, and reads the digests. `clock` must outlive the result.
  /// Errors: kDeadline: no sender answers. kCorrupt: the sender has another root.
  static Result<std::unique_ptr<Fetcher>> open(const SourceOptions& options, Clock& clock);
  /// Makes a Fetcher for an image of a known length, and waits for nobody: its thread meets the
  /// sender. `clock` must outlive the result.
  static Result<std::unique_ptr<Fetcher>> open_later(const SourceOptions& options,
                                                     std::uint64_t image_bytes, Clock& clock);
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  std::uint64_t image_bytes() const { return image_bytes_; }
  /// Fills `out` with the bytes from `offset` on. The range lies within the image.
  Status read(std::uint64_t offset, MutableByteSpan out) STDCHK_EXCLUDES(mutex_);

 private:
  /// A Contact says how far the thread has come with the sender.
  struct Contact {
    bool is_met = false;     ///< the manifest is proven, and the sender of meeting_ is asked
    bool is_proven = false;  ///< the manifest's root is the image's
    std::uint32_t manifest_units = 0;  ///< that have come
    std::uint64_t newest = 0;          ///< the highest number of the sender's datagrams
    Time newest_at{};                  ///< its datagram came
    Time quiet_since{};                ///< a reader waits, and the sender is silent
  };
  struct Silence {
    Time heard{};  ///< a new datagram of the sender came
    /// The sender was silent for the patience, or has another image. Reads fail at once.
    std::optional<Error> failed;
  };

  Fetcher(const SourceOptions& options, Descriptor wake, Clock& clock);
  static Result<std::unique_ptr<Fetcher>> make(const SourceOptions& options, Clock& clock);
  void start();
  void set_length(std::uint64_t image_bytes);
  Status meet(Duration patience);
  Status read_manifest();
  void run();
  void meet_again() STDCHK_EXCLUDES(mutex_);
  Status turn();
  bool take_wants() STDCHK_EXCLUDES(mutex_);
  Status take(const Opened& opened, std::size_t datagram_bytes);
  void take_unit(std::uint32_t unit, std::vector<std::byte> bytes) STDCHK_EXCLUDES(mutex_);
  void drop_oldest() STDCHK_REQUIRES(mutex_);
  void copy(std::uint64_t offset, MutableByteSpan out) const STDCHK_REQUIRES(mutex_);

  const SourceOptions options_;
  Clock& clock_;
  const Descriptor wake_;          ///< eventfd: a read() wants a unit, or the end has come
  std::uint64_t image_bytes_ = 0;  ///< set before the thread starts
  std::uint32_t own_units_ = 0;    ///< of the manifest; as image_bytes_
  // Members of the thread:
  std::unique_ptr<Meeting> meeting_;  ///< nullptr: the sender was never met
  std::unique_ptr<Demand> demand_;
  Contact contact_;
  std::unordered_map<std::uint32_t, std::vector<std::byte>> assembly_;  ///< incomplete units

  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint32_t, std::size_t> readers_ STDCHK_GUARDED_BY(mutex_);  ///< of each unit
  std::vector<std::uint32_t> begun_ STDCHK_GUARDED_BY(mutex_);  ///< units with a first reader
  std::vector<std::uint32_t> ended_ STDCHK_GUARDED_BY(mutex_);  ///< units that nobody waits for
  std::unordered_map<std::uint32_t, std::vector<std::byte>> kept_ STDCHK_GUARDED_BY(mutex_);
  std::deque<std::uint32_t> order_ STDCHK_GUARDED_BY(mutex_);  ///< of kept_, oldest first
  Silence silence_ STDCHK_GUARDED_BY(mutex_);
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace stdchk::multicast
