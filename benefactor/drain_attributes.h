#pragma once

#include <cstdint>
#include <ctime>
#include <string_view>

#include "benefactor/problem.h"

namespace stdchk::benefactor {

/// What a file in the drain directory should look like.
struct Wanted {
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
};

std::int64_t to_ns(const timespec& time);

/// True when a file system has that time for `wanted`: some keep times in steps of up to 2 s.
bool is_time_of(std::int64_t wanted_ns, const timespec& there);

/// Sets owner, mode and modification time of the file or folder behind `fd`, which may have been
/// opened with O_PATH. The owner is set as far as this process may: not being root is no error.
Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path);

}  // namespace stdchk::benefactor
