#include "benefactor/memory/arena.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/units.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace stdchk::benefactor {
namespace {

constexpr const char* kWhere = "benefactor.arena";
constexpr std::uint64_t kTransparentHugePage = 2 * limits::kMiB;
/// Pages are taken in parts of this size. So a deadline, a cancellation or a machine that runs out
/// of memory is noticed within some 100 ms.
constexpr std::uint64_t kPrefaultPart = 64 * limits::kMiB;
constexpr std::uint64_t kWriteBackPart = 64 * limits::kMiB;

std::uint64_t round_down(std::uint64_t bytes, std::uint64_t step) { return bytes / step * step; }

std::string reserve_hint(std::uint64_t bytes, const HugePages& pages) {
  const std::uint64_t needed = (bytes + pages.page_bytes - 1) / pages.page_bytes;
  return fmt::format(
      "{} huge pages of {} are needed and {} are free; reserve them as root with "
      "`sysctl -w vm.nr_hugepages={}`",
      needed, format_bytes(pages.page_bytes), pages.free, pages.total - pages.free + needed);
}

tl::unexpected<Problem> system_problem(const std::string& what) {
  const int error = errno;
  const Code code = error == ENOMEM                      ? Code::kNoMemory
                    : error == ENOSPC || error == EDQUOT ? Code::kNoSpace
                                                         : Code::kSystem;
  return problem(code, kWhere, error, fmt::format("{}: {}.", what, std::strerror(error)));
}

unsigned processor_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

/// A File closes its descriptor at its end.
struct File {
  explicit File(int descriptor) : fd(descriptor) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd;
};

/// Opens a file in `directory` without a name: it vanishes with its last descriptor and mapping.
int open_nameless(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
  std::string name = directory + "/stdchk-arena-XXXXXX";
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

/// Like posix_fallocate, but in parts: a whole disk takes minutes and must be cancellable.
Outcome<void> allocate(int fd, const ArenaOptions& options, const Clock& clock,
                       std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes; done += kPrefaultPart) {
    if (options.cancelled != nullptr && *options.cancelled) {
      return problem(Code::kCancelled, kWhere, 0, "The start was cancelled.");
    }
    if (clock.now() >= options.deadline) {
      return problem(Code::kDeadline, kWhere, 0, "Allocating the file took too long.");
    }
    const auto part = static_cast<off_t>(std::min(kPrefaultPart, bytes - done));
    errno = ::posix_fallocate(fd, static_cast<off_t>(done), part);
    if (errno != 0) {
      return system_problem(
          fmt::format("{} could not be allocated in {}", format_bytes(bytes), options.directory));
    }
  }
  return {};
}

/// Takes the pages of a range, writable for this process, without changing their content.
bool touch(std::byte* from, std::uint64_t bytes) {
  if (::madvise(from, bytes, MADV_POPULATE_WRITE) == 0) return true;
  // Linux before 5.14 lacks this advice: touch each page by hand.
  if (errno != EINVAL) return false;
  for (std::uint64_t at = 0; at < bytes; at += 4096) {
    auto* page = reinterpret_cast<volatile std::byte*>(from + at);
    *page = *page;
  }
  return true;
}

}  // namespace

/// A WriteBack writes a disk arena's dirty pages to the file at fixed intervals, so that they never
/// pile up.
struct Arena::WriteBack {
  WriteBack(std::byte* data, std::uint64_t length, Duration interval)
      : thread([this, data, length, interval] {
          while (stop.sleep(interval)) {
            for (std::uint64_t at = 0; at < length && !stop.requested(); at += kWriteBackPart) {
              if (::msync(data + at, std::min(kWriteBackPart, length - at), MS_SYNC) != 0) {
                log::warning("writing the arena's file back failed: {}", std::strerror(errno));
              }
            }
          }
        }) {}
  ~WriteBack() {
    stop.request();
    thread.join();
  }
  Stop stop;
  std::thread thread;
};

Outcome<std::unique_ptr<Arena>> Arena::create(const ArenaOptions& options, const Clock& clock) {
  std::unique_ptr<Arena> arena(new Arena);
  if (options.pins_memory) {
    if (auto checked = check_memlock(options.bytes); !checked) return problem(checked.error());
  }
  if (auto mapped = arena->map(options, clock); !mapped) return problem(mapped.error());
  arena->facts_.is_common_memory =
      options.backing != Backing::kDisk && arena->page_bytes_ == kCommonPage;
  // Neither is vital: old kernels refuse.
  ::madvise(arena->data_, arena->length_, MADV_DONTDUMP);
  ::madvise(arena->data_, arena->length_, MADV_DONTFORK);
  if (options.prefault && options.backing != Backing::kDisk) {
    if (auto taken = arena->prefault(options, clock); !taken) return problem(taken.error());
  }
  if (options.backing == Backing::kDisk) {
    arena->write_back_ =
        std::make_unique<WriteBack>(arena->data_, arena->length_, options.write_back_interval);
  }
  return arena;
}

Arena::~Arena() {
  write_back_.reset();
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_length_);
}

Outcome<void> Arena::map(const ArenaOptions& options, const Clock& clock) {
  length_ = round_down(options.bytes, page_bytes_);
  if (length_ == 0) {
    return problem(Code::kInvalidArgument, kWhere, 0, "The memory to lend is less than one page.");
  }
  switch (options.backing) {
    case Backing::kAnonymous:
      return map_anonymous(options);
    case Backing::kMemfd:
    case Backing::kHugetlb:
      return map_memfd(options, clock);
    case Backing::kRamdisk:
    case Backing::kDisk:
      return map_directory(options, clock);
  }
  return problem(Code::kInternal, kWhere, 0, "unknown backing");
}

Outcome<void> Arena::map_anonymous(const ArenaOptions& options) {
  if (options.check_machine) {
    if (auto checked = check_memory(length_, options.files, options.pressure); !checked)
      return checked;
  }
  mapping_length_ = length_ + kTransparentHugePage;
  void* mapping = ::mmap(nullptr, mapping_length_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return system_problem(fmt::format("{} could not be mapped", format_bytes(length_)));
  }
  mapping_ = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  data_ = mapping_ + (kTransparentHugePage - address % kTransparentHugePage) % kTransparentHugePage;
  facts_.backing = "anonymous";
  if (::madvise(data_, length_, MADV_HUGEPAGE) != 0) {
    facts_.advice = "This kernel has no transparent huge pages: copying into new pages is slower.";
  }
  return {};
}

Outcome<void> Arena::map_memfd(const ArenaOptions& options, const Clock& clock) {
  const HugePages pages = huge_pages(options.files);
  const bool huge = options.backing == Backing::kHugetlb || pages.total > 0;
  if (huge) {
    if (pages.page_bytes == 0) {
      return problem(Code::kNoMemory, kWhere, 0,
                     "This kernel has no reserved huge pages; use --backing anonymous.");
    }
    length_ = round_down(length_, pages.page_bytes);
    if (length_ == 0 || pages.free < length_ / pages.page_bytes) {
      return problem(Code::kNoMemory, kWhere, 0,
                     reserve_hint(options.bytes, pages) + ", or use --backing anonymous.");
    }
    page_bytes_ = pages.page_bytes;
  } else {
    if (options.check_machine) {
      if (auto checked = check_memory(length_, options.files, options.pressure); !checked)
        return checked;
    }
    facts_.advice = "A memfd without reserved huge pages has pages of 4 KiB and is several times " +
                    std::string("slower: ") + reserve_hint(length_, pages) + ".";
  }
  File file(::memfd_create("stdchk-arena", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0u)));
  if (file.fd < 0) return system_problem("A memfd could not be made");
  facts_.backing = huge ? "memfd hugetlb" : "memfd";
  return map_file(file.fd, options, clock);
}

Outcome<void> Arena::map_directory(const ArenaOptions& options, const Clock& clock) {
  struct statfs system {};
  const std::string& directory = options.directory;
  if (::statfs(directory.c_str(), &system) != 0) {
    return system_problem(fmt::format("The directory {} cannot be used", directory));
  }
  const bool hugetlb = system.f_type == HUGETLBFS_MAGIC;
  const bool memory =
      hugetlb || system.f_type == TMPFS_MAGIC || system.f_type == static_cast<long>(RAMFS_MAGIC);
  if (options.backing == Backing::kRamdisk && !memory) {
    return problem(Code::kInvalidArgument, kWhere, 0,
                   fmt::format("{} is not on a ramdisk (tmpfs, ramfs, hugetlbfs); name a "
                               "folder on a ramdisk, or lend a disk with --disk {}.",
                               directory, directory));
  }
  if (hugetlb) page_bytes_ = static_cast<std::uint64_t>(system.f_bsize);
  length_ = round_down(length_, page_bytes_);
  if (length_ == 0) {
    return problem(Code::kInvalidArgument, kWhere, 0,
                   fmt::format("The memory to lend is less than one page of {}.", directory));
  }
  if (options.check_machine) {
    // A ramfs has no size, so statvfs(3) says nothing about it; hugetlbfs without size= reports 0.
    const bool sized = system.f_blocks != 0 && !hugetlb;
    auto checked = sized ? check_disk(length_, directory) : Outcome<void>{};
    if (checked && memory && !hugetlb)
      checked = check_memory(length_, options.files, options.pressure);
    if (!checked) return checked;
  }
  File file(open_nameless(directory));
  if (file.fd < 0) return system_problem(fmt::format("No file can be made in {}", directory));
  const char* kind = hugetlb ? "hugetlbfs" : memory ? "ramdisk" : "disk";
  facts_.backing = fmt::format("{} {}", kind, directory);
  return map_file(file.fd, options, clock);
}

Outcome<void> Arena::map_file(int fd, const ArenaOptions& options, const Clock& clock) {
  if (::ftruncate(fd, static_cast<off_t>(length_)) != 0) {
    return system_problem(fmt::format("A file of {} could not be made", format_bytes(length_)));
  }
  // The file gets its blocks first: otherwise a full file system would end this process by SIGBUS
  // in the middle of a write. On ramfs, which cannot allocate ahead, prefault() takes the pages.
  if (options.prefault && !facts_.backing.starts_with("memfd")) {
    auto allocated = allocate(fd, options, clock, length_);
    if (!allocated && allocated.error().error.os_errno != EOPNOTSUPP) return allocated;
  }
  void* mapping = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) {
    return system_problem(fmt::format("{} could not be mapped", format_bytes(length_)));
  }
  mapping_ = data_ = static_cast<std::byte*>(mapping);
  mapping_length_ = length_;
  return {};
}

Outcome<void> Arena::prefault(const ArenaOptions& options, const Clock& clock) {
  const Time start = clock.now();
  const std::uint64_t parts = (length_ + kPrefaultPart - 1) / kPrefaultPart;
  const unsigned wanted = options.threads != 0 ? options.threads : processor_count();
  facts_.threads = static_cast<unsigned>(std::min<std::uint64_t>(wanted, parts));
  // Other processes, above all other benefactors, may take memory at the same time. So each part is
  // checked again, or the last process to start would wake the OOM killer.
  const bool recheck = options.check_machine && page_bytes_ == kCommonPage;
  std::atomic<std::uint64_t> next{0};
  Mutex mutex;
  Outcome<void> outcome;
  std::atomic<bool> failed{false};
  const auto give_up = [&](Outcome<void> why) {
    const MutexLock lock(mutex);
    if (!failed.exchange(true)) outcome = std::move(why);
  };
  const auto work = [&] {
    for (std::uint64_t i = next++; i < parts && !failed; i = next++) {
      const std::uint64_t at = i * kPrefaultPart;
      const std::uint64_t bytes = std::min(kPrefaultPart, length_ - at);
      if (options.cancelled != nullptr && *options.cancelled) {
        return give_up(problem(Code::kCancelled, kWhere, 0, "The start was cancelled."));
      }
      if (clock.now() >= options.deadline) {
        return give_up(
            problem(Code::kDeadline, kWhere, 0,
                    fmt::format("Taking {} of memory took too long.", format_bytes(length_))));
      }
      if (recheck) {
        if (auto room = check_memory(bytes, options.files, options.pressure); !room)
          return give_up(std::move(room));
      }
      if (!touch(data_ + at, bytes)) {
        return give_up(
            system_problem(fmt::format("{} of memory could not be taken", format_bytes(length_))));
      }
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < facts_.threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  facts_.prefault_time = clock.now() - start;
  return outcome;
}

ArenaFacts Arena::facts() const {
  ArenaFacts facts = facts_;
  facts.bytes = length_;
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    std::uintptr_t from = 0, to = 0;
    unsigned long long kib = 0;
    char key[64];
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      inside = from < begin + length_ && to > begin;
    } else if (inside && std::sscanf(line.c_str(), "%63[^:]: %llu kB", key, &kib) == 2) {
      const std::string_view name(key);
      const bool reserved = name == "Shared_Hugetlb" || name == "Private_Hugetlb";
      if (name == "AnonHugePages" || name == "ShmemPmdMapped" || name == "FilePmdMapped" ||
          reserved) {
        facts.huge_bytes += kib * 1024;
      }
      if (name == "Rss" || reserved) facts.resident_bytes += kib * 1024;
    }
  }
  if (facts.advice.empty() && facts.backing == "anonymous" &&
      facts.huge_bytes < facts.resident_bytes / 2) {
    facts.advice =
        "Most of the memory is on pages of 4 KiB and several times slower: set "
        "/sys/kernel/mm/transparent_hugepage/enabled to madvise or always.";
  }
  return facts;
}

}  // namespace stdchk::benefactor
