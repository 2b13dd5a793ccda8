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

/// Returns the first range of data of the open file `fd` at or behind `from` and in front of `to`,
/// cut to these bounds; nothing: there is only a hole (lseek(2), SEEK_DATA). A file system that
/// knows no holes has data everywhere. Moves the descriptor's file offset.
std::optional<DataRange> next_data(int fd, std::uint64_t from, std::uint64_t to);

}  // namespace stdchk
