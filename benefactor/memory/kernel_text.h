#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Reads numbers from the text files of /proc and of control groups. An empty result means that the
/// file or the number does not exist.
namespace stdchk::benefactor {

/// Returns the number behind `key` in a file with lines such as "MemAvailable:   12 kB" or
/// "inactive_file 12".
std::optional<std::uint64_t> keyed_number(const std::string& path, std::string_view key);

/// Returns the number that a file consists of. Empty, too, for "max", which means no limit.
std::optional<std::uint64_t> whole_file_number(const std::string& path);

/// Returns the microseconds since the start in which some task waited for memory, from a file such
/// as /proc/pressure/memory (Documentation/accounting/psi.rst).
std::optional<std::uint64_t> stalled_us(const std::string& path);

}  // namespace stdchk::benefactor
