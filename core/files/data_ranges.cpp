#include "core/files/data_ranges.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace stdchk {

std::optional<DataRange> next_data(int fd, std::uint64_t from, std::uint64_t to) {
  if (from >= to) return std::nullopt;
  const off_t begin = ::lseek(fd, static_cast<off_t>(from), SEEK_DATA);
  if (begin < 0 && errno == ENXIO) return std::nullopt;
  if (begin < 0) return DataRange{from, to};
  if (static_cast<std::uint64_t>(begin) >= to) return std::nullopt;
  const off_t end = ::lseek(fd, begin, SEEK_HOLE);
  const std::uint64_t stop = end < 0 ? to : static_cast<std::uint64_t>(end);
  return DataRange{static_cast<std::uint64_t>(begin), std::min(stop, to)};
}

}  // namespace stdchk
