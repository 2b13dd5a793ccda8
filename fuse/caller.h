#pragma once

#include <cstdint>
#include <string_view>

namespace stdchk::mount {

/// How the process behind a FLUSH is doing.
enum class CallerState : std::uint8_t {
  kRunning,  ///< it called close(), or ends by exit(): what it wrote counts
  kKilled,   ///< a signal ends it: what it wrote is a part
  kUnseen,   ///< it cannot be seen from here (another pid namespace, or gone)
};

/// Reads a line of /proc/PID/stat (proc_pid_stat(5)): PF_EXITING is 0x4 in field 9, the exit code
/// in the form of waitpid(2) is field 52. A line that cannot be understood is kUnseen.
CallerState parse_process_stat(std::string_view line);

/// Looks at process or thread `pid` of user `uid`, as a request carries them; pid 0 is kUnseen.
CallerState look_at_caller(std::int32_t pid, std::uint32_t uid);

}  // namespace stdchk::mount
