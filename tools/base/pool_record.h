#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/files/own_folder.h"
#include "tools/base/process.h"

namespace stdchk::tools {

class SpareRecord;

/// The largest pool.json; a pool with the most hosts needs less.
inline constexpr std::size_t kRecordBytesMax = std::size_t{16} << 20;

/// A Member is one process of a pool, as `stdchk up` started it.
struct Member {
  std::string role;  ///< "manager", "standby", "benefactor", "mount"; "recorder" of Undrained
  std::string host;  ///< empty: this host
  ProcessId process;
  std::string boot_id;  ///< the host's boot at its start
  std::string log;      ///< path on that host
  std::string mount;    ///< of a mount: its mount point
  std::uint64_t mount_id =
      0;                  ///< of a mount: which one it was at first, see mount_id(); 0: unknown
  std::string directory;  ///< on another host: the state directory there
  std::string metrics;    ///< address of its metrics at its start; empty: none
};

/// A HostFolder is a state directory on another host, where processes may have been started.
struct HostFolder {
  std::string host;
  std::string directory;
  bool operator==(const HostFolder&) const = default;
};

/// A PoolRecord is what `stdchk up` knows about a pool, stored as pool.json in its state directory.
///
/// Not: the pool's content, which the manager knows.
struct PoolRecord {
  std::string directory;  ///< the state directory itself; not written
  std::string mount;
  std::string drain;
  std::string created;          ///< time, for people
  std::string manager_address;  ///< with the standby's address after a comma
  /// start command on this host; empty: started elsewhere
  std::vector<std::string> manager_command;
  std::vector<std::string> remote_shell;  ///< "ssh", or a command of several words
  std::string transport = "auto";
  bool trusted_network = false;  ///< content crosses TCP in clear
  std::string job_id;            ///< of the batch job that this part belongs to; empty: none
  std::string report;            ///< file to which the report card is added at the end; empty: none
  std::string
      undrained;  ///< file with the list of undrained images, for a loss of the pool; empty: none
  std::vector<Member> members;
  /// Recorded before the first start on a host. After its answer, the members name the same folder.
  std::vector<HostFolder> host_folders;
  ProcessId starter;         ///< the `stdchk up` that starts or started the pool
  std::string starter_boot;  ///< the boot of `starter`
  bool ready = false;        ///< the pool was usable once; until then it stores no image
  bool keeps_key = true;     ///< the processes with the spare record may know the key; not written
  std::shared_ptr<SpareRecord> spare;  ///< written together with the record; not part of it

  std::string secret_file() const { return directory + "/secret"; }
  /// The path of the encryption key. The file exists only on hosts that mount an encrypted pool.
  std::string key_file() const { return directory + "/key"; }
  std::string address_file() const { return directory + "/manager.address"; }
  std::string path() const { return directory + "/pool.json"; }
};

/// Writes pool.json atomically: a reader sees the old or the new file.
Outcome<void> save(const PoolRecord& record);
/// Loads the record of a state directory, or of a link to it. The directory must be this user's
/// own.
Outcome<PoolRecord> load(const std::string& directory);
/// Decodes the text of a pool.json, which may be arbitrary bytes. Checks each field that is used as
/// a path, a host or a process.
Outcome<PoolRecord> parse_record(const std::string& directory, const std::string& text);

/// The present address of a member's metrics, which may change at a restart; empty: none.
std::string metrics_address(const Member& member);
/// The file in the state directory to which the daemon of that name writes its metrics' address.
std::string metrics_file(const std::string& directory, const std::string& name);

/// True when the member runs. Only for members on this host.
bool is_alive(const Member& member);

/// The rules for a state directory.
inline constexpr FolderRules kStateRules{
    .what = "the state directory", .is_private = true, .safe_above = true};
Outcome<OwnFolder> open_state(const std::string& directory);

/// /tmp/stdchk-UID: a folder of this user that all sessions on this host share.
std::string user_folder();
/// The folder of state directories without --state: $XDG_RUNTIME_DIR/stdchk if that folder is this
/// user's, otherwise user_folder().
std::string state_base();
/// The state directory of the pool mounted at `mount` (an absolute path).
std::string default_state_directory(const std::string& mount);
/// Makes `directory` findable from state_base(), for a pool whose --state is elsewhere.
void announce(const std::string& directory, const std::string& mount);
void withdraw(const std::string& directory, const std::string& mount);

/// All pools of this user that state_base() knows.
std::vector<PoolRecord> known_pools();

/// Finds the pool of a command: `named` (--pool), else $STDCHK_POOL, else the pool whose mount
/// holds `path`, else the only running pool. A state directory that was removed while the pool ran
/// is made again (restore.h). The Problem lists the pools that exist.
Outcome<PoolRecord> find_pool(const std::string& named, const std::string& path);
/// Whether `named`, the value of --pool, is only that of $STDCHK_POOL. An option on the command
/// line that names a pool otherwise, such as `run --up`, overrides the environment.
bool is_chosen_by_environment(const std::string& named);

/// Makes a path absolute and removes "." and "..". Does not touch the last parts on disk: a mount
/// there may hang.
std::string absolute_path(const std::string& path);

/// Like absolute_path(); also resolves a link at the path's end.
std::string absolute_path_of_link(const std::string& path);

/// `path` relative to the pool's mount, without a leading "/"; the mount itself is "".
Outcome<std::string> path_in_pool(const PoolRecord& pool, const std::string& path);

/// Is `path` the folder, or anything in it? Both absolute.
bool is_below(const std::string& path, const std::string& folder);

}  // namespace stdchk::tools
