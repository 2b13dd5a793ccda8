#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/units.h"
#include "core/runtime/options.h"
#include "tools/ask/set_health.h"
#include "tools/base/exit_status.h"
#include "tools/base/mounts.h"
#include "tools/base/process.h"
#include "tools/base/show.h"
#include "tools/command_line.h"
#include "tools/data/end_of_job.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_network.h"
#include "tools/doctor/metadata_health.h"
#include "tools/drained/undrained.h"
#include "tools/pool/down.h"
#include "tools/pool/job.h"
#include "tools/pool/up.h"

namespace stdchk::tools {

namespace {

/// Time after which each benefactor should keep the metadata.
constexpr Duration kKeptAfter = std::chrono::seconds(3);

int run_up(UpOptions& up) {
  auto pool = up.batch.all_nodes ? start_in_job(up) : start_pool(up);
  if (!pool) {
    if (up.invocation.shell_lines) fmt::print("false\n");  // makes the shell's eval fail, too
    return complain("the pool was not started: " + pool.error().text);
  }
  if (up.hosts.standby) {
    for (const std::string& warning : metadata_warnings(*pool, kKeptAfter)) {
      fmt::print(stderr, "stdchk: {}\n", warning);
    }
  }
  if (up.invocation.shell_lines) {
    fmt::print("export STDCHK_MOUNT={}\n", shell_word(pool->mount));
    if (up.mount.name_only) {
      fmt::print("export STDCHK_MANAGER={} STDCHK_SECRET_FILE={}\n",
                 shell_word(pool->manager_address), shell_word(pool->secret_file()));
    }
    if (up.batch.all_nodes) fmt::print("{}", trap_commands(*pool, up.invocation.program));
    fmt::print(stderr, "{}", describe_pool(*pool, up));
    return kExitGood;
  }
  if (!up.invocation.json) {
    fmt::print("{}", describe_pool(*pool, up));
    return kExitGood;
  }
  nlohmann::json members = nlohmann::json::array();
  for (const auto& member : pool->members) {
    members.push_back({{"role", member.role},
                       {"host", member.host},
                       {"pid", member.process.pid},
                       {"log", member.log}});
  }
  print({{"mount", pool->mount},
         {"drain", pool->drain},
         {"state_directory", pool->directory},
         {"manager_address", pool->manager_address},
         {"members", members}});
  return kExitGood;
}

int finish_down(const DownReport& report, const std::string& what) {
  // Both name files.
  for (const auto& note : report.notes) fmt::print("{}\n", shown_message(note));
  fmt::print("{}", shown_message(report.card));
  if (!report.logs.empty()) fmt::print("The logs are kept in {}\n", report.logs);
  for (const auto& trouble : report.troubles) (void)complain(trouble);
  if (!report.troubles.empty()) return kExitError;
  if (!what.empty()) fmt::print("{} is down.\n", what);
  return kExitGood;
}

/// Before a pool goes down: removes the sets that the policy `end` does not keep, then drains.
Outcome<void> clear_and_drain(const PoolRecord& pool, const DownOptions& down) {
  Cleared cleared;
  if (down.success) {
    auto done = clear_sets(pool);
    if (!done) return problem("the pool stays up: {}", done.error().text);
    cleared = std::move(*done);
    for (const std::string& note : cleared.notes) fmt::print("{}\n", note);
  }
  if (!down.drain && cleared.drain_directory.empty()) return {};
  DrainOptions drain;
  drain.pool = pool.directory;
  drain.wait = drain.before_down = true;
  drain.timeout_s = down.timeout_s;
  if (run_drain(drain) != kExitGood) {
    return problem(
        "the pool stays up because not all images are drained. Without --drain and --success it "
        "comes down at once, and loses the images that are not drained");
  }
  return forget_removed(cleared);
}

int run_down(const DownOptions& down, const std::string& invoked_as) {
  if (!down.node_of.empty()) return finish_down(stop_node_part(down.node_of), "");
  auto pool = find_pool(down.pool, down.path);
  if (!pool) return complain(pool.error().text);
  if (auto done = clear_and_drain(*pool, down); !done) return complain(done.error().text);
  const std::string what = "The pool at " + pool->mount;
  if (!pool->job_id.empty()) {
    if (auto job = current_job(pool->remote_shell); job && job->id == pool->job_id) {
      DownReport report = stop_in_job(*job, invoked_as);
      if (report.reported_losses) {
        if (!pool->undrained.empty()) ::unlink(pool->undrained.c_str());
      } else {
        report.card += take_losses(pool->undrained, pool->drain);
      }
      return finish_down(report, what);
    }
    fmt::print("This ends only this node's part of the pool of job {}.\n", pool->job_id);
  }
  return finish_down(stop_pool(*pool), what);
}

const char* word(Finding::Kind kind) {
  if (kind == Finding::Kind::kGood) return "good";
  return kind == Finding::Kind::kNote ? "note" : "bad";
}

/// Examines the pool, if one is found. Fails when the user has named a pool that does not exist.
Outcome<std::vector<Finding>> examine_a_pool(const DoctorOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (pool) {
    auto findings = examine_pool(*pool);
    findings.push_back(examine_metadata(*pool));
    findings.push_back(examine_sets(*pool));
    return findings;
  }
  const char* const chosen = std::getenv("STDCHK_POOL");
  if (!options.pool.empty() || !options.path.empty() || chosen != nullptr) {
    return problem(pool.error());
  }
  return std::vector<Finding>{
      {Finding::Kind::kNote, "pool", "nothing was measured: " + pool.error().text, "", {}}};
}

int run_doctor(const DoctorOptions& options, const std::string& invoked_as) {
  std::vector<Finding> findings = examine_machine(invoked_as);
  const auto add = [&](std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(findings));
  };
  add(examine_network());
  auto pool = examine_a_pool(options);
  if (!pool) return complain(pool.error().text);
  add(std::move(*pool));
  bool bad = false;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    bad |= finding.kind == Finding::Kind::kBad;
    nlohmann::json one{{"state", word(finding.kind)},
                       {"what", finding.what},
                       {"found", finding.found},
                       {"remedy", finding.remedy}};
    if (!finding.figures.empty()) one["figures"] = finding.figures;
    list.push_back(std::move(one));
    if (options.json) continue;
    fmt::print("{:4}  {}: {}\n", word(finding.kind), finding.what, finding.found);
    if (!finding.remedy.empty()) fmt::print("      -> {}\n", finding.remedy);
  }
  if (options.json) print(list);
  return bad ? kExitNo : kExitGood;
}

/// The Subcommands of one command line, with their options and functions.
class Subcommands {
 public:
  explicit Subcommands(Options& options) : options_(options) {}

  template <typename Chosen>
  void add(const std::string& name, const std::string& summary, std::function<int(Chosen&)> run) {
    auto chosen = std::make_shared<Chosen>();
    describe(options_.subcommand(name, summary), *chosen);
    runs_[name] = [chosen, run = std::move(run)] { return run(*chosen); };
  }

  /// Runs the subcommand that options' parse() found.
  int run_chosen() const { return runs_.at(options_.chosen())(); }

 private:
  Options& options_;
  std::map<std::string, std::function<int()>> runs_;
};

/// A subcommand without options.
struct NoOptions {};
void describe(Options& /*options*/, NoOptions& /*none*/) {}

/// Whether the options of `restart` are for a folder, and say nothing about a job of stdchk run.
bool is_for_folders(const RestartOptions& restart) {
  return !restart.to.empty() || !restart.run.empty() || !restart.load.empty() || restart.rank > 0 ||
         restart.ranks > 0 || !restart.command.empty() || restart.all_images ||
         !restart.cast.empty() || restart.multicast != "auto" ||
         restart.timeout_s != RestartOptions().timeout_s;
}

/// Changes `job`, as it was started, to what the command line of `restart` says.
Outcome<void> change_job(const RestartOptions& restart, RunOptions& job) {
  if (is_for_folders(restart)) {
    return problem(
        "{} is a job of stdchk run: its restart takes no program, and none of --to, --run, --load, "
        "--rank, --ranks, --all-images, --multicast and --timeout",
        restart.path);
  }
  // The record of the job overrides $STDCHK_POOL.
  if (!restart.pool.empty() && !is_chosen_by_environment(restart.pool)) {
    if (!job.up.empty()) {
      return problem("{} has a pool of its own, by run --up: its restart takes no --pool",
                     restart.path);
    }
    job.pool = absolute_path(restart.pool);
  }
  const bool on_hosts = !restart.hosts.empty(), here = restart.nodes > 0;
  if ((restart.job && (on_hosts || here)) || (on_hosts && here)) {
    return problem("--nodes, --hosts and --job exclude each other");
  }
  if (on_hosts && ::access(restart.hosts.c_str(), R_OK) != 0) {
    return problem(
        "--hosts \"{}\" cannot be read: the restart of a job of stdchk run takes a file with a "
        "line "
        "NAME [address=ADDRESS] for each host",
        restart.hosts);
  }
  job.set = restart.set;
  job.lazy = job.lazy || restart.lazy;
  if (!restart.remote_shell.empty()) job.hosts.remote_shell = restart.remote_shell;
  if (!restart.job && !on_hosts && !here) return {};
  job.hosts.in_job = restart.job;
  job.hosts.file = restart.hosts;
  job.hosts.nodes = std::max(restart.nodes, 1U);
  return {};
}

/// Adds the commands that read, drain, verify and load files.
void add_files(Subcommands& commands, const std::string& invoked_as) {
  commands.add<ListOptions>("ls", "Lists files; with -l their versions and places.", run_list);
  commands.add<StatOptions>("stat", "Shows the size, copies and drain of one file.", run_stat);
  commands.add<DrainOptions>("drain", "Copies images to the drain directory now.", run_drain);
  commands.add<SafeOptions>(
      "safe", "Says whether images are on the parallel file system, verified.", run_safe);
  commands.add<PolicyOptions>("policy", "Shows or changes the policies of a folder.", run_policy);
  commands.add<SetOptions>("set", "Lists, pins or commits the sets of a folder.", run_set);
  commands.add<ScrubOptions>("scrub", "Checks every copy of every chunk now.", run_scrub);
  commands.add<CheckOptions>("check", "Walks all metadata and reports every broken rule.",
                             run_check);
  commands.add<GarbageOptions>("gc", "Frees the memory of chunks that no file uses.", run_garbage);
  commands.add<RecoverOptions>("recover", "Restarts a manager that has ended or does not answer.",
                               run_recover);
  commands.add<VerifyOptions>("verify", "Compares drained files with the manifests beside them.",
                              run_verify);
  commands.add<StageInOptions>(
      "stage-in", "Loads a drained set into a pool, compared with its checksums.",
      [invoked_as](const auto& stage) { return run_stage_in(stage, invoked_as); });
  commands.add<RestartOptions>(
      "restart", "Loads each rank's image, and waits until all ranks have their images.",
      [invoked_as](auto& restart) {
        RunOptions job;
        if (!find_job(restart.path, job)) {
          if (!restart.lazy && restart.nodes == 0) return run_restart(restart, invoked_as);
          return complain(fmt::format("{}: {} is no job of stdchk run on this host",
                                      restart.lazy ? "--lazy" : "--nodes", restart.path));
        }
        if (auto placed = change_job(restart, job); !placed) return complain(placed.error().text);
        return run_job(job, invoked_as);
      });
}

/// Adds the commands on jobs in containers, and the rehearsal of a restart.
void add_jobs(Subcommands& commands, const std::string& invoked_as) {
  commands.add<RunOptions>("run", "Runs an MPI job in containers that are saved and restarted.",
                           [invoked_as](auto& job) { return run_job(job, invoked_as); });
  commands.add<JobsOptions>("jobs", "Lists jobs in containers.", run_jobs);
  commands.add<CheckpointOptions>("checkpoint", "Saves a job in containers now.", run_checkpoint);
  commands.add<EvacuateOptions>("evacuate", "Moves containers from a node to other nodes.",
                                run_evacuate);
  commands.add<RestartTestOptions>(
      "restart-test", "Loads all images of a set at once, and prints the time it took.",
      [invoked_as](const auto& test) { return run_restart_test(test, invoked_as); });
}

/// Adds all subcommands in the order of the help.
void add_all(Subcommands& commands, Options& options, std::vector<std::string> words) {
  const std::string invoked_as = words.front();
  commands.add<UpOptions>("up", "Starts a pool on this machine and others, and mounts it.",
                          [&options, invoked_as, words = std::move(words)](UpOptions& up) {
                            up.invocation.program = invoked_as;
                            up.invocation.config_file = options.chosen_options().config_file();
                            up.invocation.arguments.assign(words.begin() + 2, words.end());
                            return up.batch.one_node ? run_node_part(std::move(up)) : run_up(up);
                          });
  commands.add<DownOptions>("down", "Unmounts a pool and ends its processes.",
                            [invoked_as](auto& down) { return run_down(down, invoked_as); });
  commands.add<StatusOptions>("status", "Shows the pool's processes, space and drain.", run_status);
  commands.add<ReportOptions>("report", "Shows what the pool has done so far, and what to change.",
                              run_report);
  add_files(commands, invoked_as);
  add_jobs(commands, invoked_as);
  commands.add<SimilarityCommand>(
      "similarity", "Says how similar images are, and how they are best cut into chunks.",
      run_similarity);
  commands.add<BenchOptions>(
      "bench", "Measures how fast a mount and other file systems write and read images.",
      run_bench);
  commands.add<TopOptions>("top", "Shows the pool's activity, again and again.", run_top);
  commands.add<AdviseOptions>(
      "advise", "Works out how often to checkpoint, with how many copies and benefactors.",
      run_advise);
  commands.add<MemberKeyOptions>(
      "member-key",
      "Prints a key for a benefactor, a mount or a node of containers that is started by hand.",
      run_member_key);
  commands.add<DoctorOptions>(
      "doctor", "Finds faults of the set-up, and measures writes to a pool's benefactors.",
      [invoked_as](auto& doctor) { return run_doctor(doctor, invoked_as); });
  commands.add<NoOptions>("vm", "Runs virtual machines that can be cloned: see stdchk vm --help.",
                          [](auto&) { return kExitError; });  // run() starts stdchk-vm instead
  commands.add<NoOptions>("version", "Prints the version.", [](auto&) {
    fmt::print("stdchk {}\n", version());
    return kExitGood;
  });
}

/// Runs the program stdchk-vm in place of this process. Returns only when that fails.
int become_vm(char** argv) {
  const auto program = find_program("stdchk-vm", argv[0]);
  if (!program) return complain(program.error().text);
  ::execv(program->c_str(), argv + 1);
  return complain(fmt::format("{} cannot be started: {}", *program, std::strerror(errno)));
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "vm") return become_vm(argv);
  Options options("stdchk", "Keeps checkpoint images in memory that the job's own nodes lend.");
  Subcommands commands(options);
  add_all(commands, options, {argv, argv + argc});
  if (auto status = options.parse_or_exit(argc, argv)) return *status;
  log::start("stdchk", log::Level::kWarning);
  return commands.run_chosen();
}

}  // namespace
}  // namespace stdchk::tools

int main(int argc, char** argv) { return stdchk::tools::run(argc, argv); }
