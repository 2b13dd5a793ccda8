#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "shims/ranks.h"
#include "shims/scr/pace.h"
#include "shims/set_folder.h"
#include "shims/settings.h"

namespace stdchk::shims {

// A Job is the state of libscr between SCR_Init and SCR_Finalize.
//
// Owns: two folders of sets in the pool, `scr/checkpoints` and `scr/output`, below the prefix or
// the cache directory. Threads: the one that calls MPI. Errors: sentences; an empty sentence is
// success. Functions that are collective fail on all ranks or on none.
class Job {
 public:
  enum class Phase { kIdle, kOutput, kRestart };

  // Collective. `*job` is set on success.
  static std::string start(Settings& settings, std::unique_ptr<Job>* job);
  // Collective.
  void finish();

  Phase phase() const { return phase_; }
  std::string route(const std::string& name, std::string* path);

  // Collective, as all below. `name` may be empty.
  std::string start_output(const std::string& name, int flags);
  std::string complete_output(bool is_valid);
  bool needs_checkpoint();
  bool should_exit();
  // Whether SCR_Complete_output has to end the program.
  bool ends_program() const { return ends_program_; }

  // Returns the name of the checkpoint from which the job can restart.
  std::optional<std::string> restart_name();
  std::string start_restart();
  std::string complete_restart(bool is_valid);
  void set_current(const std::string& name) { current_ = name; }
  std::string remove(const std::string& name, bool keeps_files);

 private:
  Job(Settings& settings, const std::string& prefix, const std::string& base);
  std::string create_folders();
  // The sets of both folders, the newest first.
  std::vector<NotedSet> sets() const;
  std::optional<NotedSet> newest() const;
  // Returns the part of the path of `name` below the prefix; nullopt if it leads elsewhere.
  std::optional<std::string> below_prefix(const std::string& name) const;

  Settings& settings_;
  Ranks ranks_;
  std::string prefix_;
  SetFolder checkpoints_, outputs_;
  Pace pace_;
  Phase phase_ = Phase::kIdle;
  NotedSet set_;                   // of the phase
  std::set<std::string> routed_;   // paths of this phase
  std::set<std::string> refused_;  // directories from which a restart failed
  std::string current_;            // the checkpoint that the user or the program names
  bool ends_program_;
};

}  // namespace stdchk::shims
