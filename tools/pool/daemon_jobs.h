#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/base/hosts.h"
#include "tools/base/pool_record.h"
#include "tools/pool/members.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// A DaemonJobs makes the command lines of a pool's daemons from the options of `stdchk up`.
///
/// Threads: one.
class DaemonJobs {
 public:
  /// The arguments must outlive this object. `hosts` are the pool's other hosts.
  DaemonJobs(const UpOptions& options, const PoolRecord& record, const std::vector<Host>& hosts)
      : options_(options), record_(record), hosts_(hosts) {}

  /// Finds the programs of all daemons. Must succeed before a Job is made.
  Outcome<void> find_programs();

  Job manager();
  /// Makes the Job of a second manager from the command of the first, which runs. A null `host`
  /// means this host.
  Job standby(const Host* host);
  Job benefactor(std::uint32_t number, std::uint64_t memory_bytes, const std::string& address,
                 const std::string& host, const std::string& directory);
  /// Makes the Job of a benefactor of this host.
  Job benefactor(std::uint32_t number);
  /// Makes the Job of a mount whose state is in `directory`. An empty `host` means this host.
  Job mount(const std::string& host, const std::string& directory);

  /// Returns the state directory on another host.
  std::string directory_on(const std::string& host) const;

 private:
  Job job(const std::string& role, const std::string& name, const std::string& program,
          const std::string& directory) const;
  std::string listen() const;
  std::string manager_listen() const;
  std::string next_metrics(const std::string& host);
  void add_reporting(Job& job, const std::string& host, const std::string& directory);
  std::uint64_t pool_bytes() const;
  std::uint64_t log_memory(std::uint64_t memory_bytes) const;

  const UpOptions& options_;
  const PoolRecord& record_;
  const std::vector<Host>& hosts_;
  std::map<std::string, std::uint16_t> metrics_given_;  ///< next port, by host
  std::string manager_program_;
  std::string benefactor_program_;
  std::string mount_program_;
};

/// Returns the name of a member's key file in its state directory.
std::string key_name(const std::string& job);
/// Adds `flag` and `value` to the arguments. The values "" and "0" mean the daemon's default, and
/// add nothing.
void add_flag(std::vector<std::string>& arguments, const char* flag, const std::string& value);

}  // namespace stdchk::tools
