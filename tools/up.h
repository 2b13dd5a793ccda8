#pragma once

#include <cstdint>
#include <string>

#include "core/limits.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// What `stdchk up` was told. Empty texts: the daemon's own default.
struct UpOptions {
  std::uint32_t benefactors = 2;
  std::uint64_t memory_bytes = 512 * limits::kMiB;  ///< of each benefactor
  std::string mount;
  std::string drain;
  std::uint64_t drain_rate = 0;
  std::string hosts_file;
  std::string remote_shell = "ssh";
  bool mount_on_hosts = false;
  std::string listen;
  std::string transport = "auto";
  std::uint32_t chunk_bytes = 0;
  std::uint32_t stripe_width = 0;
  std::string naming;
  std::string policy;
  std::uint64_t window_bytes = 0;
  std::string close_mode;
  std::string backing;
  std::string disk;
  std::string state;
  std::string log_level;
  bool allow_other = false;
  bool json = false;
  std::string config_file;
  std::string invoked_as;
};

/// Starts a pool and returns when its mount is usable; after a failure nothing of it runs any more.
Outcome<PoolRecord> start_pool(UpOptions options);
/// How to use the pool, for people.
std::string describe_pool(const PoolRecord& pool, const UpOptions& options);

}  // namespace stdchk::tools
