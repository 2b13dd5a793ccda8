#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/pool_record.h"

namespace stdchk::tools {

/// Files that nobody but this user may read: name in the state directory, and text.
using PrivateFiles = std::map<std::string, std::string>;

/// A Job is one daemon that is to run: how to start it and how it tells that it is usable.
struct Job {
  std::string role;  ///< "manager", "standby", "benefactor", "mount", "recorder"
  std::string name;  ///< "benefactor.3": names its log and its ready file
  std::string program;
  std::vector<std::string> arguments;
  std::string ready_file;
  std::string mount;
  int input = -1;  ///< a descriptor that becomes its standard input, on this host; -1: none

  /// Gives a flag that is among the arguments another value.
  void change(std::string_view flag, const std::string& value);
};

/// Starts `job` on this host, its log in `directory`. The member is not yet usable.
Outcome<Member> start_local(const Job& job, const std::string& directory);
/// Waits until the job's ready file is there, and notes where its metrics are and which mount a
/// mount is. The Problem is the
/// daemon's own last words.
Outcome<void> wait_ready(const Job& job, Member& member, Duration longest);

/// A StartReport is what the script says that starts jobs on another host.
struct StartReport {
  std::string boot;             ///< empty: the script did not run
  std::vector<Member> started;  ///< without host and directory; the log is in that
  std::string failure;          ///< why one of them is not usable
  bool ready = false;           ///< all are
};
StartReport read_start_report(const std::string& text, const std::vector<Job>& jobs);

/// Starts jobs on another host through the remote shell and waits until all are usable. What was
/// started is added to `members` also when this fails.
Outcome<void> start_remote(const std::vector<std::string>& remote_shell, const std::string& host,
                           const std::string& directory, const PrivateFiles& files,
                           const std::vector<Job>& jobs, Duration longest,
                           std::vector<Member>& members);

/// The mount_id() that the mount daemon of a state directory has told last, in its ready file; 0:
/// there is none.
std::uint64_t told_mount_id(const std::string& directory);

/// What happened to the members of a pool that was taken down.
struct Ended {
  std::vector<std::string> crashed;   ///< "benefactor 3 (pid 7) had ended before; its log is ..."
  std::vector<std::string> troubles;  ///< for a person to see to
  std::set<pid_t> unmounted;          ///< lived until their mount was taken away: no crash
  bool good() const { return troubles.empty(); }
};
/// Ends the members of one role exactly, everywhere; those that are gone already are no error.
/// With the benefactors of another host goes all else that was started in its state directory, also
/// what a killed `stdchk up` could not note any more.
void end_members(const PoolRecord& pool, const std::string& role, Duration grace, Ended& ended);

/// The last line of a log that says something, without time and level.
std::string last_words(const std::string& log);
/// What its warnings and errors from that byte on say.
std::vector<std::string> warnings(const std::string& log, std::uintmax_t from);

}  // namespace stdchk::tools
