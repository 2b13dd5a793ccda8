#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The subcommands that read and write images. Each prints its result and returns
/// the exit status (base/exit_status.h).
namespace stdchk::tools {

struct VerifyOptions {
  std::string path;      ///< a drain directory, a folder in it, or an object store
  std::string endpoint;  ///< of the object store
  bool json = false;
};
int run_verify(const VerifyOptions& options);
/// The same for an object store.
int run_verify_objects(const VerifyOptions& options);

struct StageInOptions {
  std::string pool;
  std::string path;      ///< a drain directory, a folder in it, or an object store
  std::string endpoint;  ///< of the object store
  std::string to;        ///< a folder of the pool; empty: its root
  std::string set;       ///< a set's name; empty: the newest complete set of each folder
  bool all = false;      ///< every file
  std::uint32_t readers = 16;
  bool json = false;
  std::string to_all;  ///< then copies the set to this local folder of all nodes; empty: no
  bool job = false;    ///< the nodes of the batch job
  std::string hosts;   ///< or of this file or list of names
  std::string multicast = "auto";  ///< as of RestartOptions
  std::string remote_shell;
};
int run_stage_in(const StageInOptions& options, const std::string& invoked_as);

struct RestartOptions {
  std::string pool;
  std::string path;  ///< a folder of the pool
  std::string set;   ///< a set's name; empty: the newest complete set
  std::string to;    ///< copies the images to this local folder; empty: only reads them
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  ///< 0: rank and ranks come from the launcher's environment
  std::string run;          ///< name shared by all ranks of this start; empty: from the environment
  std::uint32_t timeout_s = 600;
  // Only for a job in containers:
  bool lazy = false;        ///< load memory while the job runs
  std::uint32_t nodes = 0;  ///< daemons on this host; 0: where the job ran before
  // For the process that loads for all ranks:
  bool job = false;                ///< on all nodes of the batch job; each node is one rank
  std::string hosts;               ///< file, or names with commas: the host of each rank
  std::string remote_shell;        ///< empty: the shell of `up`, or in a job its launcher
  bool all_images = false;         ///< copies the images of all ranks to each node
  std::string multicast = "auto";  ///< "auto", "always", "never": how images go to all nodes
  // For one node's part, which that process starts:
  std::string load;  ///< ranks, with commas: loads their images without a barrier
  std::string cast;  ///< the offer of a sender of the images that all nodes load; empty: none
  /// this process becomes this program when all ranks have their images
  std::vector<std::string> command;
};
int run_restart(RestartOptions& options, const std::string& invoked_as);

}  // namespace stdchk::tools
