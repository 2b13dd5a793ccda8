#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// Files that only this user may read: name in the state directory, and text.
using PrivateFiles = std::map<std::string, std::string>;

/// A Job is a daemon to start: its command, and how it reports that it is usable.
struct Job {
  std::string role;  ///< "manager", "standby", "benefactor", "mount", "recorder"
  std::string name;  ///< such as "benefactor.3"; names its log and its ready file
  std::string program;
  std::vector<std::string> arguments;
  std::string ready_file;
  std::string mount;
  int input = -1;  ///< descriptor that becomes its standard input, on this host; -1: none

  /// Replaces the value of a flag among the arguments.
  void change(std::string_view flag, const std::string& value);
};

/// Starts `job` on this host, its log in `directory`. The member is not yet usable.
Outcome<Member> start_local(const Job& job, const std::string& directory);
/// Waits for the job's ready file, and records the address of its metrics and the number of its
/// mount. The Problem is the daemon's own last words.
Outcome<void> wait_ready(const Job& job, Member& member, Duration longest);

/// Returns the time limit until this much memory is touched and all daemons answer.
Duration ready_longest(std::uint64_t memory_bytes);

/// A StartReport is the output of the script that starts jobs on another host.
struct StartReport {
  std::string boot;             ///< empty: the script did not run
  std::vector<Member> started;  ///< without host and directory; the log lies in that directory
  std::string failure;          ///< why a job is not usable
  bool ready = false;           ///< all are usable
};
StartReport read_start_report(const std::string& text, const std::vector<Job>& jobs);

/// Starts jobs on another host through the remote shell, and waits until all are usable. Adds
/// started members to `members` even after a failure.
Outcome<void> start_remote(const std::vector<std::string>& remote_shell, const std::string& host,
                           const std::string& directory, const PrivateFiles& files,
                           const std::vector<Job>& jobs, Duration longest,
                           std::vector<Member>& members);

/// The mount_id() in the ready file of a state directory's mount daemon; 0: none.
std::uint64_t recorded_mount_id(const std::string& directory);

/// The results of ending a pool's members.
struct Ended {
  std::vector<std::string> crashed;   ///< "benefactor 3 (pid 7) had ended before; its log is ..."
  std::vector<std::string> troubles;  ///< work that is left for the user
  /// mount processes that ended because their mount was removed: no crash
  std::set<pid_t> unmounted;
  bool good() const { return troubles.empty(); }
};
/// Ends exactly the members of one role, on all hosts; it is no error if members have ended. On
/// other hosts, the benefactors' end also ends every other process of their state directory. This
/// includes processes that a killed `stdchk up` could not record.
void end_members(const PoolRecord& pool, const std::string& role, Duration grace, Ended& ended);

/// The last meaningful line of a log, without time and level.
std::string last_words(const std::string& log);
/// The warnings and errors of the log after byte `from`.
std::vector<std::string> warnings(const std::string& log, std::uintmax_t from);

}  // namespace stdchk::tools
