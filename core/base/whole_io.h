#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stdchk {

/// Writes all of `text`. Returns false on an error, with errno set.
bool write_all(int fd, std::string_view text);
/// Reads to the end of the file, at most `bytes_max`. Returns false on an error, with errno set.
bool read_text(int fd, std::size_t bytes_max, std::string& text);

/// Writes all of `bytes` from `offset` on. Returns false on an error, with errno set.
bool write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes);
/// Fills `out` with the bytes from `offset` on. Returns their number, which is smaller only when the
/// file ends before, or -1 on an error, with errno set.
ssize_t read_at(int fd, std::uint64_t offset, std::span<std::byte> out);

}  // namespace stdchk
