#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Numbers in the text files of /proc and of control groups. Nothing: the file or the number is not
/// there.
namespace stdchk::benefactor {

/// The number behind "KEY" in a file of lines such as "MemAvailable:   12 kB" or "inactive_file
/// 12".
std::optional<std::uint64_t> keyed_number(const std::string& path, std::string_view key);

/// The number that is all of a file. Nothing, too, for "max", the word for no limit.
std::optional<std::uint64_t> whole_file_number(const std::string& path);

/// Microseconds in which some task waited for memory since the start, of a file as
/// /proc/pressure/memory (Documentation/accounting/psi.rst).
std::optional<std::uint64_t> stalled_us(const std::string& path);

}  // namespace stdchk::benefactor
