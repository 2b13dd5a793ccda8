#pragma once

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <cstdint>

/// userfaultfd(2) as Linux 6.6 has it. The headers of Debian 12 are older.
namespace stdchk::pager {

inline constexpr std::uint64_t kPageBytes = 4096;

inline constexpr std::uint64_t kFeaturePoison = std::uint64_t{1} << 14;
/// The argument of UFFDIO_POISON: accesses to these pages end with SIGBUS.
struct PoisonRange {
  uffdio_range range{};
  std::uint64_t mode = 0;
  std::int64_t updated = 0;
};
inline constexpr unsigned long kPoison = _IOWR(UFFDIO, 0x08, PoisonRange);
/// An ioctl of /dev/userfaultfd (Linux 6.1), which makes a new userfaultfd.
inline constexpr unsigned long kNewFromDevice = _IO(0xAA, 0x00);

/// True when the descriptor is a userfaultfd.
bool is_userfault(int fd);

}  // namespace stdchk::pager
