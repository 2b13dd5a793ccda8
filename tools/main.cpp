#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/log.h"
#include "core/options.h"
#include "core/units.h"
#include "tools/commands.h"
#include "tools/doctor.h"
#include "tools/doctor_network.h"
#include "tools/down.h"
#include "tools/job.h"
#include "tools/mounts.h"
#include "tools/show.h"
#include "tools/up.h"
#include "transport/factory.h"

namespace stdchk::tools {

int complain(const std::string& text) {
  fmt::print(stderr, "stdchk: {}\n", text);
  return kExitError;
}

namespace {

/// Subcommands whose names are settled and whose work is not there yet.
constexpr const char* kLater[] = {"bench", "stage-in"};

struct DownOptions {
  std::string pool;
  std::string path;
  bool drain = false;
  std::uint32_t timeout_s = 0;
  std::string node_of;
};

struct DoctorOptions {
  std::string pool;
  std::string path;
  bool json = false;
};

/// All subcommands' options. One of them is filled by the command line.
struct Commands {
  UpOptions up;
  DownOptions down;
  StatusOptions status;
  ListOptions list;
  StatOptions stat;
  DrainOptions drain;
  SafeOptions safe;
  PolicyOptions policy;
  SetOptions set;
  VerifyOptions verify;
  RestartTestOptions restart_test;
  SimilarityCommand similarity;
  AdviseOptions advise;
  TopOptions top;
  ScrubOptions scrub;
  CheckOptions check;
  GarbageOptions gc;
  DoctorOptions doctor;
};

void describe_up(Options& options, UpOptions& up) {
  options.text("--mount", up.mount, "DIR", "where the pool is mounted").required();
  options.count("--benefactors", up.benefactors, 1, 4096,
                "processes that lend memory, a host: 2 without it, in a job 1");
  options.size("--memory", up.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
               "memory that each of them lends");
  options.text("--drain", up.drain, "DIR", "parallel file system directory to copy images to");
  options.rate("--drain-rate", up.drain_rate, "bytes a second that each benefactor drains");
  options.text("--hosts", up.hosts_file, "FILE",
               "start the benefactors on these hosts; a line is NAME [address=ADDRESS] "
               "[memory=SIZE] [benefactors=N]");
  options.text("--rsh", up.remote_shell, "COMMAND", "how to reach them: COMMAND HOST sh -s");
  options.flag("--mount-on-hosts", up.mount_on_hosts, "mount the pool there too");
  options.text("--listen", up.listen, "HOST[,HOST...]",
               "addresses that the daemons here listen on; the manager on the first");
  options.choice("--transport", up.transport, transport::choices(), "how bytes move");
  options.chunk_size("--chunk-size", up.chunk_bytes, "size of the chunks that images are cut into");
  options.count("--stripe-width", up.stripe_width, 0, 1024,
                "benefactors that one image is spread over; 0 is the manager's default");
  options.choice("--naming", up.naming, {"auto", "on", "off"},
                 "name chunks by content, store equal ones once; auto: where that pays");
  options.choice(
      "--chunking", up.chunking, {"fixed", "content", "none"},
      "where chunks end: after a fixed length, or where their content says; none: fixed, "
      "and not named");
  options.count("--copies", up.copies, 0, limits::kCopiesMax,
                "of each chunk, on different hosts; 0 is the manager's default, one");
  options.rate("--copy-rate", up.copy_rate,
               "most bytes a second that each benefactor copies from others");
  options.rate("--scrub-rate", up.scrub_rate, "most bytes a second that each benefactor checks");
  options.size("--window", up.window_bytes, limits::kMiB, std::uint64_t{1} << 40,
               "memory of the mount between write() and storage");
  options.choice("--close", up.close_mode, {"stored", "early", "redundant"},
                 "what close() waits for");
  options.text("--backing", up.backing, "KIND",
               "anonymous, memfd, hugetlb, or a ramdisk directory");
  options.text("--disk", up.disk, "DIR", "lend disk space below this directory instead of memory");
  options.text("--policy", up.policy, "SETTINGS",
               "for folders that set nothing themselves: KEY=VALUE,KEY=VALUE...");
  options.flag("--allow-other", up.allow_other, "other users may use the mount");
  options.text("--state", up.state, "DIR", "where the pool's state, logs and secret are kept");
  options.choice("--log-level", up.log_level, {"debug", "info", "warning", "error"},
                 "how much the daemons log");
  options.flag("--json", up.json, "print what was started as JSON").command_line_only();
  options.flag("--job", up.job, "on the nodes of the Slurm or PBS job that this runs in")
      .command_line_only();
  options.count("--benefactor-nodes", up.benefactor_nodes, 1, 100000,
                "with --job: how many of its nodes lend memory, the last ones; without it all");
  options.text("--exchange", up.exchange, "DIR",
               "with --job: a folder that all nodes share; without it the working directory");
  options.flag("--node", up.node, "the part of one node, as --job starts it").command_line_only();
  options.flag("--detach", up.detach, "with --node: return when it is usable").command_line_only();
  options.text("--job-id", up.job_id, "ID", "with --node: the job").command_line_only();
  options.text("--nodes", up.nodes, "NAME,...", "with --node: the job's nodes").command_line_only();
  options.text("--lenders", up.lenders, "NAME,...", "with --node: those that lend")
      .command_line_only();
}

void add_pool(Options& options, std::string& pool) {
  options.text("--pool", pool, "DIR", "state directory of the pool");
}

void describe(Options& options, Commands& commands) {
  describe_up(options.subcommand("up", "Starts a pool on this machine and others, and mounts it."),
              commands.up);

  Options& down = options.subcommand("down", "Unmounts a pool and ends its processes.");
  down.flag("--drain", commands.down.drain, "drain everything first").command_line_only();
  down.count("--timeout", commands.down.timeout_s, 0, 1000000,
             "seconds that the drain may take; 0 is no limit")
      .command_line_only();
  down.text("--node-of", commands.down.node_of, "ID",
            "end what that batch job has left on this node only")
      .command_line_only();
  add_pool(down, commands.down.pool);
  down.argument("PATH", commands.down.path, "the mount, or anything below it");

  Options& status = options.subcommand("status", "Shows the pool's processes, space and drain.");
  status.flag("--json", commands.status.json, "as JSON").command_line_only();
  add_pool(status, commands.status.pool);
  status.argument("PATH", commands.status.path, "the mount, or anything below it");

  Options& list = options.subcommand("ls", "Lists files, with -l versions and where they are.");
  list.flag("-l,--long", commands.list.details, "versions, sizes, chunks, benefactors, drain")
      .command_line_only();
  list.flag("--aborted", commands.list.aborted, "writes that ended without a commit")
      .command_line_only();
  list.flag("--json", commands.list.json, "as JSON").command_line_only();
  add_pool(list, commands.list.pool);
  list.argument("PATH", commands.list.path, "a file or directory of the pool");

  Options& stat = options.subcommand("stat", "Shows all about one file.");
  stat.flag("--json", commands.stat.json, "as JSON").command_line_only();
  add_pool(stat, commands.stat.pool);
  stat.argument("PATH", commands.stat.path, "a file or directory of the pool").required();

  Options& drain = options.subcommand("drain", "Copies images to the drain directory now.");
  drain.flag("--wait", commands.drain.wait, "return when they are there and verified")
      .command_line_only();
  drain
      .count("--timeout", commands.drain.timeout_s, 0, 1000000,
             "seconds that the wait may take; 0 is no limit")
      .command_line_only();
  drain.flag("--json", commands.drain.json, "as JSON").command_line_only();
  add_pool(drain, commands.drain.pool);
  drain.argument("PATH", commands.drain.path, "only what is below it");

  Options& safe =
      options.subcommand("safe", "Says whether images are on the parallel file system, verified.");
  safe.flag("--json", commands.safe.json, "as JSON").command_line_only();
  add_pool(safe, commands.safe.pool);
  safe.argument("PATH", commands.safe.path, "a file, or a directory for all below it").required();

  Options& policy =
      options.subcommand("policy", "Shows or changes what a folder asks for the images in it.");
  policy.flag("--json", commands.policy.json, "as JSON").command_line_only();
  add_pool(policy, commands.policy.pool);
  policy.argument("get|set", commands.policy.action, "what to do").required();
  policy.argument("DIR", commands.policy.path, "a folder of the pool").required();
  policy.arguments("KEY=VALUE", commands.policy.settings, "what to set; inherit removes a setting");

  Options& set = options.subcommand("set", "Lists the sets A.*.Tj of a folder, or keeps one.");
  set.flag("--json", commands.set.json, "as JSON").command_line_only();
  add_pool(set, commands.set.pool);
  set.argument("list|pin|unpin", commands.set.action, "what to do").required();
  set.argument("PATH", commands.set.path, "a folder of the pool; to pin, FOLDER/A.*.Tj").required();
  Options& scrub = options.subcommand("scrub", "Has every copy of every chunk checked now.");
  scrub.flag("--wait", commands.scrub.wait, "return when all was checked").command_line_only();
  scrub.flag("--json", commands.scrub.json, "as JSON").command_line_only();
  add_pool(scrub, commands.scrub.pool);
  scrub.argument("PATH", commands.scrub.path, "the mount, or anything below it");

  Options& check = options.subcommand("check", "Walks all metadata and reports every broken rule.");
  check.flag("--json", commands.check.json, "as JSON").command_line_only();
  add_pool(check, commands.check.pool);
  check.argument("PATH", commands.check.path, "the mount, or anything below it");

  Options& gc = options.subcommand("gc", "Finds memory that nothing uses and gives it back.");
  gc.flag("--dry-run", commands.gc.dry_run, "only say what would be given back")
      .command_line_only();
  gc.flag("--json", commands.gc.json, "as JSON").command_line_only();
  add_pool(gc, commands.gc.pool);
  gc.argument("PATH", commands.gc.path, "the mount, or anything below it");

  Options& verify =
      options.subcommand("verify", "Compares drained files with the manifests beside them.");
  verify.flag("--json", commands.verify.json, "as JSON").command_line_only();
  verify.argument("DIR", commands.verify.path, "a drain directory, or a folder in it").required();

  Options& restart = options.subcommand(
      "restart-test", "Loads all images of a set at once, and says how long it took.");
  restart.flag("--json", commands.restart_test.json, "as JSON").command_line_only();
  add_pool(restart, commands.restart_test.pool);
  restart
      .text("--set", commands.restart_test.set, "A.*.Tj", "which; without it the newest whole one")
      .command_line_only();
  restart.count("--readers", commands.restart_test.readers, 1, 1024, "images loaded at once");
  restart.argument("DIR", commands.restart_test.path, "a folder of the pool").required();

  Options& similarity = options.subcommand(
      "similarity", "Says how alike images are, and how they are best cut into chunks.");
  similarity
      .size("--sample", commands.similarity.sample_bytes, 0, std::uint64_t{1} << 50,
            "of each image what slow techniques look at; 0 is all")
      .command_line_only();
  similarity.flag("--json", commands.similarity.json, "as JSON").command_line_only();
  similarity.arguments("FILE", commands.similarity.files,
                       "images of one series, in the order of their timesteps");
  Options& top = options.subcommand("top", "Shows what the pool is doing, again and again.");
  top.count("--interval", commands.top.interval_s, 1, 3600, "seconds between two looks")
      .command_line_only();
  top.count("--count", commands.top.count, 1, 1000000, "looks; without it until it is ended")
      .command_line_only();
  add_pool(top, commands.top.pool);
  top.argument("PATH", commands.top.path, "the mount, or anything below it");

  Options& advise = options.subcommand(
      "advise", "Works out how often to checkpoint, with how many copies and benefactors.");
  advise.count("--nodes", commands.advise.nodes, 2, 1U << 20, "of the job").command_line_only();
  advise
      .size("--memory", commands.advise.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "that each node saves")
      .command_line_only();
  advise
      .size("--lend", commands.advise.lend_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "that each benefactor node lends")
      .command_line_only();
  advise
      .text("--mtbf", commands.advise.node_mtbf, "TIME",
            "mean time between failures of one node, such as 1825d")
      .command_line_only();
  advise.rate("--node-rate", commands.advise.node_rate, "of one node into the pool, a second")
      .command_line_only();
  advise
      .rate("--pfs-rate", commands.advise.pfs_rate,
            "of all nodes to the parallel file system, a second")
      .command_line_only();
  advise
      .count("--stripe-width", commands.advise.stripe_width, 1, 1024,
             "benefactors that one image is spread over")
      .command_line_only();
  advise.count("--table", commands.advise.table_nodes, 8, 4096, "most nodes in the table")
      .command_line_only();
  advise.text("--plot", commands.advise.plot, "FILE", "draw the table as SVG").command_line_only();
  advise.flag("--json", commands.advise.json, "as JSON").command_line_only();

  Options& doctor = options.subcommand(
      "doctor", "Names the cause of a bad set-up, and measures writes to a pool's benefactors.");
  doctor.flag("--json", commands.doctor.json, "as JSON").command_line_only();
  add_pool(doctor, commands.doctor.pool);
  doctor.argument("PATH", commands.doctor.path, "the mount of the pool, or anything below it");

  options.subcommand("version", "Prints the version.");
  static std::vector<std::string> ignored;
  for (const char* name : kLater) {
    options.subcommand(name, "Not available in this version.").arguments("ARGUMENT", ignored, "");
  }
}

int run_up(const UpOptions& up) {
  auto pool = up.job ? start_in_job(up) : start_pool(up);
  if (!pool) return complain("the pool was not started: " + pool.error().text);
  if (!up.json) {
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
  for (const auto& note : report.notes) fmt::print("{}\n", note);
  if (!report.logs.empty()) fmt::print("The logs are kept in {}\n", report.logs);
  for (const auto& trouble : report.troubles) (void)complain(trouble);
  if (!report.troubles.empty()) return kExitError;
  if (!what.empty()) fmt::print("{} is down.\n", what);
  return kExitGood;
}

int run_down(const DownOptions& down, const std::string& invoked_as) {
  if (!down.node_of.empty()) return finish_down(stop_node_part(down.node_of), "");
  auto pool = find_pool(down.pool, down.path);
  if (!pool) return complain(pool.error().text);
  if (down.drain) {
    DrainOptions drain;
    drain.pool = pool->directory;
    drain.wait = true;
    drain.timeout_s = down.timeout_s;
    if (run_drain(drain) != kExitGood) {
      return complain(
          "the pool stays up because not everything is drained; without --drain it comes down all "
          "the same, and what is not drained is lost");
    }
  }
  const std::string what = "The pool at " + pool->mount;
  if (!pool->job_id.empty()) {
    if (auto job = current_job(); job && job->id == pool->job_id) {
      return finish_down(stop_in_job(*job, invoked_as), what);
    }
    fmt::print("This is the part of job {} on this node; the others end it with the job.\n",
               pool->job_id);
  }
  return finish_down(stop_pool(*pool), what);
}

const char* word(Finding::Kind kind) {
  if (kind == Finding::Kind::kGood) return "good";
  return kind == Finding::Kind::kNote ? "note" : "bad";
}

/// The pool that is meant; one that nobody has named need not be there.
Outcome<std::vector<Finding>> examine_a_pool(const DoctorOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (pool) return examine_pool(*pool);
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

int advise_with(AdviseOptions& advise) {
  if (!advise.node_mtbf.empty()) {
    const auto seconds = parse_seconds(advise.node_mtbf);
    if (!seconds || *seconds == 0) {
      return complain(
          fmt::format("--mtbf \"{}\" is not valid; allowed: a time such as 90s, 15m, 12h or "
                      "1825d",
                      advise.node_mtbf));
    }
    advise.node_mtbf_s = *seconds;
  }
  if (advise.node_rate == 0 || advise.pfs_rate == 0) {
    return complain("--node-rate and --pfs-rate must be more than 0");
  }
  return run_advise(advise);
}

int run(int argc, char** argv) {
  Options options("stdchk", "Keeps checkpoint images in memory that the job's own nodes lend.");
  Commands commands;
  describe(options, commands);
  // Before their options, which nobody knows yet, are complained about.
  if (argc > 1 && std::ranges::find(kLater, std::string_view(argv[1])) != std::end(kLater)) {
    return complain(fmt::format("\"{}\" is not available in this version", argv[1]));
  }
  if (auto status = options.parse_or_exit(argc, argv)) return *status;
  log::start("stdchk", log::Level::kWarning);
  const std::string& chosen = options.chosen();
  const std::string invoked_as = argv[0];
  if (chosen == "up") {
    commands.up.invoked_as = invoked_as;
    commands.up.config_file = options.chosen_options().config_file();
    commands.up.arguments.assign(argv + 2, argv + argc);
    if (commands.up.node) return run_node_part(std::move(commands.up));
    return run_up(commands.up);
  }
  if (chosen == "down") return run_down(commands.down, invoked_as);
  if (chosen == "status") return run_status(commands.status);
  if (chosen == "ls") return run_list(commands.list);
  if (chosen == "stat") return run_stat(commands.stat);
  if (chosen == "drain") return run_drain(commands.drain);
  if (chosen == "safe") return run_safe(commands.safe);
  if (chosen == "policy") return run_policy(commands.policy);
  if (chosen == "set") return run_set(commands.set);
  if (chosen == "verify") return run_verify(commands.verify);
  if (chosen == "restart-test") return run_restart_test(commands.restart_test);
  if (chosen == "similarity") return run_similarity(commands.similarity);
  if (chosen == "top") return run_top(commands.top);
  if (chosen == "advise") return advise_with(commands.advise);
  if (chosen == "scrub") return run_scrub(commands.scrub);
  if (chosen == "check") return run_check(commands.check);
  if (chosen == "gc") return run_garbage(commands.gc);
  if (chosen == "doctor") return run_doctor(commands.doctor, invoked_as);
  if (chosen == "version") {
    fmt::print("stdchk {}\n", version());
    return kExitGood;
  }
  return complain(fmt::format("\"{}\" is not known", chosen));
}

}  // namespace
}  // namespace stdchk::tools

int main(int argc, char** argv) { return stdchk::tools::run(argc, argv); }
