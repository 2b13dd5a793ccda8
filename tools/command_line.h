#pragma once

#include <cstdint>
#include <string>

#include "core/runtime/options.h"
#include "tools/ask/commands.h"
#include "tools/containers/commands.h"
#include "tools/data/commands.h"
#include "tools/lab/commands.h"
#include "tools/pool/commands.h"
#include "tools/pool/member_key.h"
#include "tools/pool/up.h"

/// The options of each subcommand of `stdchk`, on its command line, in the environment and in a
/// file.
namespace stdchk::tools {

struct DownOptions {
  std::string pool;
  std::string path;
  bool drain = false;
  bool success = false;         ///< of the job: its sets go as the policy says
  std::uint32_t timeout_s = 0;  ///< limit of the drain; 0: none
  std::string node_of;          ///< a batch job: ends only its remains on this node
};

struct DoctorOptions {
  std::string pool;
  std::string path;
  bool json = false;
};

/// Each function describes to `options` how to fill the struct beside it. The struct must outlive
/// `options`.
void describe(Options& options, UpOptions& up);
void describe(Options& options, DownOptions& down);
void describe(Options& options, StatusOptions& status);
void describe(Options& options, ReportOptions& report);
void describe(Options& options, ListOptions& list);
void describe(Options& options, StatOptions& stat);
void describe(Options& options, DrainOptions& drain);
void describe(Options& options, SafeOptions& safe);
void describe(Options& options, PolicyOptions& policy);
void describe(Options& options, SetOptions& set);
void describe(Options& options, VerifyOptions& verify);
void describe(Options& options, StageInOptions& stage);
void describe(Options& options, RestartTestOptions& restart);
void describe(Options& options, BenchOptions& bench);
void describe(Options& options, RestartOptions& restart);
void describe(Options& options, SimilarityCommand& similarity);
void describe(Options& options, TopOptions& top);
void describe(Options& options, AdviseOptions& advise);
void describe(Options& options, ScrubOptions& scrub);
void describe(Options& options, CheckOptions& check);
void describe(Options& options, RecoverOptions& recover);
void describe(Options& options, GarbageOptions& garbage);
void describe(Options& options, DoctorOptions& doctor);
void describe(Options& options, MemberKeyOptions& key);
void describe(Options& options, RunOptions& run);
void describe(Options& options, JobsOptions& jobs);
void describe(Options& options, CheckpointOptions& checkpoint);
void describe(Options& options, EvacuateOptions& evacuate);

}  // namespace stdchk::tools
