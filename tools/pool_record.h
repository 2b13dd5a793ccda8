#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/process.h"

namespace stdchk::tools {

/// A Member is one process of a pool as `stdchk up` started it.
struct Member {
  std::string role;  ///< "manager", "standby", "benefactor", "mount"; "recorder" of Undrained
  std::string host;  ///< empty: this one
  ProcessId process;
  std::string boot_id;    ///< of the host when it was started
  std::string log;        ///< path on that host
  std::string mount;      ///< of a mount: its mount point
  std::string directory;  ///< on another host: the state directory there
  std::string metrics;    ///< address of its metrics when it was started; empty: it has none
};

/// A PoolRecord is what `stdchk up` knows about a pool, kept as pool.json in its state directory.
///
/// Not: the pool's content; that is the manager's.
struct PoolRecord {
  std::string directory;  ///< the state directory itself; not written
  std::string mount;
  std::string drain;
  std::string created;                       ///< time, for people
  std::string manager_address;               ///< and the standby's, behind a comma
  std::vector<std::string> manager_command;  ///< how it was started here; empty: it was not
  std::vector<std::string> remote_shell;     ///< "ssh", or a command of several words
  std::string transport = "auto";
  bool trusted_network = false;  ///< content crosses TCP in clear
  std::string job_id;            ///< of the batch job whose pool this is a part of; empty: none
  std::string report;            ///< file that the report card is added to at the end; empty: none
  std::string
      undrained;  ///< file that tells what is not drained, when the pool is lost; empty: none
  std::vector<Member> members;

  std::string secret_file() const { return directory + "/secret"; }
  /// There where images are encrypted, on hosts with a mount.
  std::string key_file() const { return directory + "/key"; }
  std::string address_file() const { return directory + "/manager.address"; }
  std::string path() const { return directory + "/pool.json"; }
};

/// Writes pool.json so that a reader sees the old or the new one, whole.
Outcome<void> save(const PoolRecord& record);
Outcome<PoolRecord> load(const std::string& directory);

/// Where its metrics are now, which may change when it is started again; empty: it has none.
std::string metrics_address(const Member& member);
/// The file in the state directory that the daemon of that name writes its metrics' address to.
std::string metrics_file(const std::string& directory, const std::string& name);

/// True when the member runs. Only for members on this host.
bool is_alive(const Member& member);

/// Where state directories are when --state does not say: $XDG_RUNTIME_DIR/stdchk or
/// /tmp/stdchk-UID.
std::string state_base();
/// The state directory of the pool mounted at `mount` (an absolute path).
std::string default_state_directory(const std::string& mount);
/// Makes `directory` findable from state_base(), for a pool whose --state is elsewhere.
void announce(const std::string& directory, const std::string& mount);
void withdraw(const std::string& directory, const std::string& mount);

/// All pools of this user that state_base() knows.
std::vector<PoolRecord> known_pools();

/// The pool that a command means: `named` (--pool), else $STDCHK_POOL, else the one whose mount
/// holds `path`, else the only one there is. The Problem lists those that exist.
Outcome<PoolRecord> find_pool(const std::string& named, const std::string& path);

/// An absolute path without "." and "..", without asking the file system about the last parts,
/// which may be a mount that does not answer.
std::string absolute_path(const std::string& path);

/// `path` relative to the pool's mount, without a leading "/"; the mount itself is "".
Outcome<std::string> path_in_pool(const PoolRecord& pool, const std::string& path);

/// Is `path` the folder, or anything in it? Both absolute.
bool is_below(const std::string& path, const std::string& folder);

}  // namespace stdchk::tools
