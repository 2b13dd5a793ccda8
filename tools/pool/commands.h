#pragma once

#include <string>

/// The subcommands about the processes of a pool. Each prints its result and returns
/// the exit status (base/exit_status.h).
namespace stdchk::tools {

struct StatusOptions {
  std::string pool;
  std::string path;
  bool json = false;
  bool prometheus = false;
  bool targets = false;  ///< prints the daemons' metrics addresses for Prometheus
};
int run_status(const StatusOptions& options);

struct RecoverOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_recover(const RecoverOptions& options);

}  // namespace stdchk::tools
