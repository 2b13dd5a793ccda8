#pragma once

#include <cstdint>
#include <string_view>

namespace stdchk::mount {

/// A CallerState is the state of the process behind a FLUSH.
enum class CallerState : std::uint8_t {
  kRunning,  ///< the process called close(), or ends by exit(): its file is complete
  kKilled,   ///< a signal ends the process: its file is incomplete
  kUnseen,   ///< the process is in another pid namespace, or gone
};

/// Reads a line of /proc/PID/stat (proc_pid_stat(5)). Field 9 has the flag PF_EXITING (0x4), field
/// 52 the exit code in the form of waitpid(2). Returns kUnseen for a line that cannot be parsed.
CallerState parse_process_stat(std::string_view line);

/// Returns the state of process or thread `pid` of user `uid`, both as in the request. kUnseen for
/// pid 0. Another thread reads /proc: each caller has such a thread. Without an answer in 200 ms the
/// process is in execve(2), which is a kind of kRunning.
CallerState inspect_caller(std::int32_t pid, std::uint32_t uid);

}  // namespace stdchk::mount
