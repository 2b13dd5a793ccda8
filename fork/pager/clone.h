#pragma once

#include <linux/userfaultfd.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "fork/pager/image.h"
#include "fork/pager/regions.h"
#include "fork/pager/run_detector.h"

namespace stdchk::pager {

/// A CloneRecord holds the data that the holder keeps beside a clone's descriptors. It is trivially
/// copyable.
struct CloneRecord {
  std::uint64_t id = 0;
  std::uint64_t image = 0;
  std::uint64_t offset = 0;  ///< in the image, where the mapping begins
  std::uint64_t length = 0;  ///< of the mapping
  std::int32_t pid = 0;      ///< of the process that asked, for messages
  Regions regions;
};

/// A Clone is one mapping of an image in one process.
///
/// Owns: the userfaultfd, and the socket whose end is the end of the mapping. A child of fork(2)
///   has no socket.
/// Threads: any.
class Clone {
 public:
  /// `least` and `most` blocks are fetched at a fault.
  Clone(const CloneRecord& record, std::shared_ptr<Image> image, Descriptor faults,
        Descriptor socket, std::uint32_t least, std::uint32_t most);

  std::uint64_t id() const { return id_; }
  std::int32_t pid() const { return pid_; }
  const std::shared_ptr<Image>& image() const { return image_; }
  int faults() const { return faults_.get(); }
  int socket() const { return socket_.get(); }
  CloneRecord record() const;

  /// Returns the next event of the userfaultfd, without waiting.
  std::optional<uffd_msg> next_event();
  /// The offset in the image of the page at `address`.
  std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
  /// The range of the image that is mapped from `offset` bytes behind the mapping's start.
  std::optional<BlockRange> blocks_of(std::uint64_t offset, std::uint64_t length) const;
  std::uint32_t blocks_ahead(std::uint64_t block);
  /// Follows mremap(2).
  void moved(std::uint64_t from, std::uint64_t to, std::uint64_t length);

  /// Lets the thread that waits for the page go on.
  void wake(std::uint64_t address) const;
  /// Lets all threads go on; those whose page is absent fault again.
  void wake_all() const;
  enum class Denial : std::uint8_t {
    kDenied,  ///< accesses to the page end with SIGBUS
    kWoken,   ///< the page has arrived, or the process's memory changes: the thread tries again
    kNotSignalled,  ///< the process could not be signalled either: the thread waits
  };
  /// Ends accesses to the page with SIGBUS, unless an event of the userfaultfd waits to be read.
  Denial deny(std::uint64_t address) const;
  /// Denies all unmapped pages in a range of the image.
  void deny_range(const BlockRange& blocks) const;
  /// False: the process has ended. For clones without a socket.
  bool is_alive() const;

 private:
  const std::uint64_t id_;
  const std::int32_t pid_;
  const std::shared_ptr<Image> image_;
  const Descriptor faults_;
  const Descriptor socket_;
  const Descriptor process_;  ///< a pidfd
  mutable Mutex mutex_;
  CloneRecord record_ STDCHK_GUARDED_BY(mutex_);
  RunDetector runs_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::pager
