#pragma once

#include <cstdint>
#include <string_view>

#include "benefactor/problem.h"
#include "core/file_time.h"

namespace stdchk::benefactor {

/// What a file in the drain directory should look like.
struct Wanted {
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
};

/// Sets owner, mode and modification time of the file or folder behind `fd`, which may have been
/// opened with O_PATH. The owner is set as far as this process may: not being root is no error.
Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path);

}  // namespace stdchk::benefactor
