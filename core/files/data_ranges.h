#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace stdchk {

/// A DataRange is a range [begin, end) of a file in which the file system keeps bytes. All other
/// bytes are holes, which read as zeros.
struct DataRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const DataRange&) const = default;
};

/// Returns the first range of data between `from` and `to` in the open file `fd` (lseek(2),
/// SEEK_DATA). Nothing: there is only a hole. A file system without holes has data everywhere.
/// Moves the descriptor's file offset.
std::optional<DataRange> next_data(int fd, std::uint64_t from, std::uint64_t to);

}  // namespace stdchk
