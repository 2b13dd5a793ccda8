#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/file_time.h"
#include "core/base/problem.h"

namespace stdchk::benefactor {

/// A Wanted is how a file in the drain directory should look.
struct Wanted {
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
};

/// Returns the mode of a drained file whose owner or group may differ from the pool's file.
/// No user gets more rights on the drained file than on the pool's file. Set-ID bits stay only with
/// the requested owner and group. A user whose class changes gets only rights that both classes
/// have (docs/guide/security.md).
std::uint32_t mode_without_widening(std::uint32_t mode, bool uid_is_right, bool gid_is_right);

enum class Acl : std::uint8_t {
  kKept,
  kNone,  ///< removes the default list that a new file or folder got from the drain directory
};

/// Sets owner, mode and modification time of the file or folder behind `fd`, which may have been
/// opened with O_PATH. A symbolic link gets owner and time: Linux knows no mode of links. Without
/// the right to change the owner, this is no error, and mode_without_widening() gives the mode.
Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path, Acl acl);

}  // namespace stdchk::benefactor
