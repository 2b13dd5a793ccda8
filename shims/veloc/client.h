#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "shims/ranks.h"
#include "shims/set_folder.h"
#include "shims/settings.h"
#include "shims/veloc/region_file.h"

namespace stdchk::shims {

// A Client is the state of libveloc-client between VELOC_Init and VELOC_Finalize.
//
// Owns: a folder of sets in the pool for each name of a checkpoint, `veloc/NAME`, below
// `persistent` or `scratch`. Threads: the one that calls MPI. Errors: sentences; an empty sentence
// is success. Functions that are collective fail on all ranks or on none.
class Client {
 public:
  enum class Phase { kIdle, kCheckpoint, kRestart };

  // Collective over `communicator`. `alone` is the name of a process that checkpoints alone; empty:
  // all ranks together.
  static std::string start(MPI_Comm communicator, const std::string& alone,
                           const std::string& config, std::unique_ptr<Client>* client);
  void finish() { ranks_.release(); }

  void protect(int id, Region region) { regions_[id] = region; }
  bool unprotect(int id) { return regions_.erase(id) == 1; }
  std::string route(const std::string& name, std::string* path);

  std::string begin(const std::string& name, int version);
  // Writes the regions that `mode` and `ids` select. At most once in a checkpoint.
  std::string write(int mode, const std::vector<int>& ids);
  std::string end(bool is_valid);
  bool last_is_complete() const { return last_is_complete_; }

  // Returns the highest complete version below `limit`, of all versions if that is 0; -1: none.
  int newest(const std::string& name, int limit) const;
  std::string begin_restart(const std::string& name, int version);
  std::string recover(int mode, const std::vector<int>& ids);
  long long recover_size(int id) const;
  std::string end_restart(bool is_valid);
  std::string cleanup(const std::string& name);

 private:
  Client(MPI_Comm communicator, std::string base) : ranks_(communicator), base_(std::move(base)) {}
  SetFolder folder_of(const std::string& name) const {
    return SetFolder(base_ + "/" + name, "version.");
  }
  std::string own_file() const;

  Ranks ranks_;
  std::string base_;
  std::int64_t versions_max_ = 0;
  Phase phase_ = Phase::kIdle;
  NotedSet set_;  // of the phase
  std::map<int, Region> regions_;
  std::set<std::string> routed_;  // paths of this phase
  bool last_is_complete_ = true;
};

}  // namespace stdchk::shims
