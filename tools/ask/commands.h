#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The subcommands that ask the manager of a pool. Each prints its result and returns
/// the exit status (base/exit_status.h).
namespace stdchk::tools {

struct ListOptions {
  std::string pool;
  std::string path;
  bool details = false;
  bool json = false;
  bool aborted = false;
};
int run_list(const ListOptions& options);

struct StatOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_stat(const StatOptions& options);

struct ReportOptions {
  std::string pool;
  std::string path;
  bool json = false;
  bool ends = false;        ///< the pool is about to end; an unused pool gets no report
  std::string undrained;    ///< only keep this file up to date (see Undrained)
  std::string safe_file;    ///< only keep this file up to date (see save_safe_set())
  bool lost = false;        ///< only print the losses that this file lists of a lost pool
  bool unconfined = false;  ///< the process that keeps a file up to date keeps all rights
};
int run_report(const ReportOptions& options);

struct DrainOptions {
  std::string pool;
  std::string path;
  bool wait = false;
  std::uint32_t timeout_s = 0;  ///< limit of the wait; 0: none
  std::string within;           ///< return after this time at the latest; empty: no limit
  bool no_manifest = false;     ///< another waiting command writes the manifests
  bool before_down = false;     ///< do not wait for chunks that memory has lost
  bool json = false;
};
int run_drain(const DrainOptions& options);

struct SafeOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_safe(const SafeOptions& options);

struct PolicyOptions {
  std::string pool;
  std::string action;  ///< "get", "set" or "suggest"
  std::string path;
  std::vector<std::string> settings;  ///< KEY=VALUE
  bool json = false;
};
int run_policy(const PolicyOptions& options);

struct SetOptions {
  std::string pool;
  std::string action;  ///< "list", "pin", "unpin" or "commit"
  std::string path;    ///< of a folder; with pin and unpin FOLDER/SET, with commit of a directory
  bool json = false;
};
int run_set(const SetOptions& options);

struct ScrubOptions {
  std::string pool;
  std::string path;
  bool wait = false;
  bool json = false;
};
int run_scrub(const ScrubOptions& options);

struct CheckOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_check(const CheckOptions& options);

struct GarbageOptions {
  std::string pool;
  std::string path;
  bool dry_run = false;
  bool json = false;
};
int run_garbage(const GarbageOptions& options);

struct TopOptions {
  std::string pool;
  std::string path;
  std::uint32_t interval_s = 1;
  std::uint32_t count = 0;  ///< number of pictures; 0: until a signal
};
int run_top(const TopOptions& options);

}  // namespace stdchk::tools
