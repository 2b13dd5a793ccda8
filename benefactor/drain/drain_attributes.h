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

/// The mode of a drained file whose owner or group may be others than those of the pool's file.
/// No user gets more rights on the drained file than on the pool's file. Set-ID bits stay only with
/// the requested owner and group. A user whose class changes gets only rights that both classes
/// have (docs/guide/security.md).
std::uint32_t mode_without_widening(std::uint32_t mode, bool uid_is_right, bool gid_is_right);

enum class Acl : std::uint8_t {
  kKept,
  kNone,  ///< what the drain directory has given to a new file or folder goes
};

/// Sets owner, mode and modification time of the file or folder behind `fd`, which may have been
/// opened with O_PATH. The owner is set as far as this process may: not being root is no error, but
/// then mode_without_widening() is the mode.
Outcome<void> set_attributes(int fd, const Wanted& wanted, std::string_view path, Acl acl);

}  // namespace stdchk::benefactor
