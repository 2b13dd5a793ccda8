#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "benefactor/machine.h"
#include "benefactor/problem.h"
#include "benefactor/stop.h"
#include "core/clock.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// Where the memory that is lent comes from.
enum class Backing : std::uint8_t {
  kAnonymous,  ///< private memory, transparent huge pages where the kernel allows them
  kMemfd,      ///< a memfd; reserved huge pages when the machine has any
  kHugetlb,    ///< a memfd of reserved huge pages, or nothing
  kRamdisk,    ///< a file in a tmpfs, ramfs or hugetlbfs
  kDisk,       ///< a preallocated file on a disk, mapped, written back now and then
};

struct ArenaOptions {
  Backing backing = Backing::kAnonymous;
  std::string directory;      ///< for kRamdisk and kDisk
  std::uint64_t bytes = 0;    ///< rounded down to whole pages
  bool pins_memory = false;   ///< the transport locks the arena (verbs): check the limit first
  bool check_machine = true;  ///< refuse what the machine does not have
  std::optional<PressureLimits> pressure;  ///< and leave twice the reserve to others
  bool prefault = true;         ///< take every page now; a simulator with many arenas may not
  unsigned threads = 0;         ///< that fault pages; 0: as many as processors
  Time deadline = Time::max();  ///< for the whole of create()
  const std::atomic<bool>* cancelled = nullptr;
  Duration write_back_interval = std::chrono::seconds(5);  ///< kDisk
  MachineFiles files;
};

/// What was really got, for the ready file, the log and `stdchk doctor`.
struct ArenaFacts {
  std::string backing;  ///< "anonymous", "memfd", "memfd hugetlb", "tmpfs DIR", "disk DIR"
  std::uint64_t bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_bytes = 0;  ///< of them on huge pages, transparent or reserved
  /// Others can have the memory when it is given back: no disk, no reserved huge pages.
  bool is_common_memory = false;
  Duration prefault_time{};
  unsigned threads = 0;
  std::string advice;  ///< a sentence when the pages are not the best the machine could give
};

/// An Arena is the memory that a benefactor lends: one contiguous range, taken whole at the start.
///
/// It never grows. Its pages are not inherited by children and not in core dumps. A file that backs
/// it has no name, so that nothing is left behind however the process ends.
///
/// Owns: the mapping, its file, and the thread that writes a disk's file back.
/// Threads: the bytes belong to whoever holds extents in them; facts() any.
/// Limits: ArenaOptions::bytes, and a few pages of book-keeping.
class Arena {
 public:
  /// Takes the memory. Errors carry a sentence that says what to do: kNoMemory, kNoSpace,
  /// kMemlock, kInvalidArgument, kDeadline, kCancelled.
  static Outcome<std::unique_ptr<Arena>> create(const ArenaOptions& options, const Clock& clock);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  MutableByteSpan bytes() const { return {data_, length_}; }
  /// Reads the kernel's account of the pages anew.
  ArenaFacts facts() const;

 private:
  static constexpr std::uint64_t kCommonPage = 4096;
  struct WriteBack;
  Arena() = default;
  Outcome<void> map(const ArenaOptions& options, const Clock& clock);
  Outcome<void> map_anonymous(const ArenaOptions& options);
  Outcome<void> map_memfd(const ArenaOptions& options, const Clock& clock);
  Outcome<void> map_directory(const ArenaOptions& options, const Clock& clock);
  Outcome<void> map_file(int fd, const ArenaOptions& options, const Clock& clock);
  Outcome<void> prefault(const ArenaOptions& options, const Clock& clock);

  std::byte* data_ = nullptr;
  std::uint64_t length_ = 0;
  std::byte* mapping_ = nullptr;  ///< may start before data_, for alignment
  std::uint64_t mapping_length_ = 0;
  std::uint64_t page_bytes_ = kCommonPage;
  ArenaFacts facts_;
  std::unique_ptr<WriteBack> write_back_;
};

}  // namespace stdchk::benefactor
