#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "benefactor/memory/machine.h"
#include "benefactor/memory/stop.h"
#include "core/base/clock.h"
#include "core/base/problem.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// The source of the lent memory.
enum class Backing : std::uint8_t {
  kAnonymous,  ///< private memory, with transparent huge pages where the kernel allows them
  kMemfd,      ///< a memfd; with reserved huge pages if the machine has any
  kHugetlb,    ///< a memfd of reserved huge pages, or failure
  kRamdisk,    ///< a file in a tmpfs, ramfs or hugetlbfs
  kDisk,       ///< a preallocated, mapped file on a disk, written back at intervals
};

struct ArenaOptions {
  Backing backing = Backing::kAnonymous;
  std::string directory;      ///< for kRamdisk and kDisk
  std::uint64_t bytes = 0;    ///< rounded down to whole pages
  bool pins_memory = false;   ///< the transport locks the arena (verbs): checks the limit first
  bool check_machine = true;  ///< refuses more than the machine has
  std::optional<PressureLimits> pressure;  ///< also leaves twice the reserve to others
  bool prefault = true;         ///< takes every page now; off for simulators with many arenas
  unsigned threads = 0;         ///< threads that fault pages; 0: one for each processor
  Time deadline = Time::max();  ///< for the whole of create()
  const std::atomic<bool>* cancelled = nullptr;
  Duration write_back_interval = std::chrono::seconds(5);  ///< kDisk
  MachineFiles files;
};

/// The memory obtained, for the ready file, the log and `stdchk doctor`.
struct ArenaFacts {
  /// "anonymous", "memfd", "memfd hugetlb", "ramdisk DIR", "hugetlbfs DIR" or "disk DIR".
  std::string backing;
  std::uint64_t bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t huge_bytes = 0;  ///< bytes on huge pages, transparent or reserved
  /// True when other processes can use the memory once it is freed: no
  /// disk, no reserved huge pages.
  bool is_common_memory = false;
  Duration prefault_time{};
  unsigned threads = 0;
  std::string advice;  ///< a sentence, if the machine could give better pages
};

/// An Arena is the memory that a benefactor lends: a contiguous range, taken whole at the start.
///
/// An arena never grows. Children do not inherit its pages, and core dumps omit them. A file behind
/// it has no name, so nothing is left however the process ends.
///
/// Owns: the mapping, its file, and the thread that writes a disk's file back.
/// Threads: the bytes belong to the holders of their extents; any thread may call facts().
/// Limits: ArenaOptions::bytes, and a few pages of book-keeping.
class Arena {
 public:
  /// Takes the memory. Errors have a sentence with advice: kNoMemory, kNoSpace, kMemlock,
  /// kInvalidArgument, kDeadline, kCancelled.
  static Outcome<std::unique_ptr<Arena>> create(const ArenaOptions& options, const Clock& clock);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  MutableByteSpan bytes() const { return {data_, length_}; }
  /// Reads the kernel's present account of the pages.
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
