#include "tools/command_line.h"

#include "core/base/units.h"
#include "transport/factory.h"

namespace stdchk::tools {
namespace {

void add_json(Options& options, bool& json) {
  options.flag("--json", json, "as JSON").command_line_only();
}

void add_pool(Options& options, std::string& pool) {
  options.text("--pool", pool, "DIR", "state directory of the pool");
}

/// Options of commands that ask a pool.
template <typename Chosen>
void add_question(Options& options, Chosen& chosen) {
  add_json(options, chosen.json);
  add_pool(options, chosen.pool);
}

/// Options of commands on a whole pool; any path in it names it.
template <typename Chosen>
void add_whole_pool(Options& options, Chosen& chosen) {
  add_question(options, chosen);
  options.argument("PATH", chosen.path, "the mount, or anything below it");
}

}  // namespace

void describe(Options& options, UpOptions& up) {
  options.text("--mount", up.mount, "DIR",
               "where the pool is mounted; only with --job there is a place without it: "
               "/tmp/stdchk-UID-jobs/JOB.mount");
  options
      .flag("--no-mount", up.no_mount,
            "only name the pool by that path: for programs that use the C library, where there is "
            "no FUSE")
      .command_line_only();
  options.count("--benefactors", up.benefactors, 1, 4096,
                "processes that lend memory, a host: 2 without it, in a job 1");
  options.size("--memory", up.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
               "memory that each of them lends");
  options.text("--drain", up.drain, "DIR", "parallel file system directory to copy images to");
  options.rate("--drain-rate", up.drain_rate, "bytes a second that each benefactor drains");
  options.rate("--drain-total", up.drain_total, "bytes a second that all of them drain together");
  options.on_off("--drain-yields", up.drain_yields,
                 "drain little while somebody writes, unless memory fills up");
  options.text("--hosts", up.hosts_file, "FILE",
               "start the benefactors on these hosts; a line is NAME [address=ADDRESS] "
               "[memory=SIZE] [benefactors=N]");
  options.flag(
      "--standby", up.standby,
      "a second manager, on the first of the hosts, takes over when the first one is lost");
  options.text("--rsh", up.remote_shell, "COMMAND", "how to reach them: COMMAND HOST sh -s");
  options.flag("--mount-on-hosts", up.mount_on_hosts, "mount the pool there too");
  options.text("--listen", up.listen, "HOST[,HOST...]",
               "addresses that the daemons here listen on; the manager on the first");
  options.choice("--transport", up.transport, transport::choices(), "how bytes move",
                 transport::former_choices());
  options.flag("--trusted-network", up.trusted_network,
               "content of images crosses TCP in clear, with a tag against changes");
  options.chunk_size("--chunk-size", up.chunk_bytes, "size of the chunks that images are cut into");
  options.count("--stripe-width", up.stripe_width, 0, 1024,
                "benefactors that one image is spread over; 0 is the manager's default");
  options.choice("--naming", up.naming, {"auto", "on", "off"},
                 "name chunks by content, store equal ones once; auto: where that pays");
  options.choice(
      "--chunking", up.chunking, {"fixed", "content", "none"},
      "where chunks end: after a fixed length, or where their content says; none: fixed, "
      "and not named");
  options.redundancy("--copies", up.copies,
                     "of each chunk, on different hosts, or parity, ec(k,m); 0 is the manager's "
                     "default, one copy");
  options.text("--topology", up.topology, "FILE",
               "which hosts fail together: copies and parity go apart; a line is NAME [node=N] "
               "[rack=R] [switch=S]");
  options.rate("--copy-rate", up.copy_rate,
               "most bytes a second that each benefactor copies from others");
  options.rate("--scrub-rate", up.scrub_rate,
               "most bytes a second that each benefactor checks; 0: only when asked to");
  options.count(
      "--gc-period", up.gc_period, 0, 86400,
      "seconds between rounds in which benefactors forget what nothing refers to; 0: only "
      "by stdchk gc");
  options.size("--window", up.window_bytes, limits::kMiB, std::uint64_t{1} << 40,
               "memory of the mount between write() and storage");
  options.choice("--close", up.close_mode, {"stored", "early", "redundant"},
                 "what close() waits for");
  options.text("--backing", up.backing, "KIND",
               "anonymous, memfd, hugetlb, or a ramdisk directory");
  options.text("--disk", up.disk, "DIR", "lend disk space below this directory instead of memory");
  options.size("--log-memory", up.log_memory, 0, std::uint64_t{1} << 40,
               "of each benefactor's memory, for the metadata that a lost manager is rebuilt from; "
               "0: what a full pool needs");
  options.on_off("--pressure", up.pressure,
                 "a benefactor leaves when its host, or a control group, runs short of memory");
  options.size("--pressure-reserve", up.pressure_reserve, 0, std::uint64_t{1} << 50,
               "of it, what should stay available to others; 0: a thirty-second, at most 2 GiB");
  options.text("--policy", up.policy, "SETTINGS",
               "for folders that set nothing themselves: KEY=VALUE,KEY=VALUE...");
  options.flag("--allow-other", up.allow_other, "other users may use the mount");
  options.flag("--encrypt", up.encrypt,
               "benefactors get no image that they could read; not with --drain, because they "
               "drain");
  options.text("--report", up.report, "FILE",
               "down adds the pool's report card to this file; in a job without it stdchk-ID.out "
               "where the nodes meet");
  options.text("--state", up.state, "DIR", "where the pool's state, logs and secret are kept");
  options.text("--metrics", up.metrics, "[ADDRESS:]PORT",
               "every daemon shows figures to Prometheus: the first one there, the others at the "
               "ports behind; port 0: free ones");
  options.choice("--log-level", up.log_level, {"debug", "info", "warning", "error"},
                 "how much the daemons log");
  options.flag("--json", up.json, "print what was started as JSON").command_line_only();
  options
      .flag("--export", up.export_mount,
            "print lines for the shell that set STDCHK_MOUNT, and with --job have the pool drained "
            "and "
            "taken down when the script ends; and the rest to standard error")
      .command_line_only();
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
  options.text("--undrained", up.undrained, "FILE", "with --node: keep here what is not drained")
      .command_line_only();
  options.text("--lenders", up.lenders, "NAME,...", "with --node: those that lend")
      .command_line_only();
}

void describe(Options& options, DownOptions& down) {
  options.flag("--drain", down.drain, "drain everything first").command_line_only();
  options
      .flag("--success", down.success,
            "the job has ended well: remove the sets that the policy \"end\" says, drain the rest")
      .command_line_only();
  options
      .count("--timeout", down.timeout_s, 0, 1000000,
             "seconds that the drain may take; 0 is no limit")
      .command_line_only();
  options
      .text("--node-of", down.node_of, "ID", "end what that batch job has left on this node only")
      .command_line_only();
  add_pool(options, down.pool);
  options.argument("PATH", down.path, "the mount, or anything below it");
}

void describe(Options& options, StatusOptions& status) {
  options
      .flag("--prometheus-targets", status.targets,
            "where the daemons' metrics are, as JSON for Prometheus's file_sd_configs")
      .command_line_only();
  options.flag("--prometheus", status.prometheus, "as text that Prometheus reads")
      .command_line_only();
  add_whole_pool(options, status);
}

void describe(Options& options, ReportOptions& report) {
  options.flag("--at-end", report.ends, "the pool is about to be taken down, as `down` says it")
      .command_line_only();
  options
      .text("--undrained", report.undrained, "FILE",
            "instead keep in this file what is not drained, and the manifests, as long as there is "
            "the pool")
      .command_line_only();
  options
      .flag("--lost", report.lost,
            "instead say, once, what was lost with a job's pool whose manager does not answer")
      .command_line_only();
  add_whole_pool(options, report);
}

void describe(Options& options, ListOptions& list) {
  options.flag("-l,--long", list.details, "versions, sizes, chunks, benefactors, drain")
      .command_line_only();
  options.flag("--aborted", list.aborted, "writes that ended without a commit").command_line_only();
  add_question(options, list);
  options.argument("PATH", list.path, "a file or directory of the pool");
}

void describe(Options& options, StatOptions& stat) {
  add_question(options, stat);
  options.argument("PATH", stat.path, "a file or directory of the pool").required();
}

void describe(Options& options, DrainOptions& drain) {
  options.flag("--wait", drain.wait, "return when they are there and verified").command_line_only();
  options
      .count("--timeout", drain.timeout_s, 0, 1000000,
             "seconds that the wait may take; 0 is no limit")
      .command_line_only();
  options
      .flag("--no-manifest", drain.no_manifest,
            "with --wait: another one who waits for the same writes the manifests")
      .command_line_only();
  add_question(options, drain);
  options.argument("PATH", drain.path, "only what is below it");
}

void describe(Options& options, SafeOptions& safe) {
  add_question(options, safe);
  options.argument("PATH", safe.path, "a file, or a directory for all below it").required();
}

void describe(Options& options, PolicyOptions& policy) {
  add_question(options, policy);
  options.argument("get|set", policy.action, "what to do").required();
  options.argument("DIR", policy.path, "a folder of the pool").required();
  options.arguments("KEY=VALUE", policy.settings, "what to set; inherit removes a setting");
}

void describe(Options& options, SetOptions& set) {
  add_question(options, set);
  options.argument("list|pin|unpin", set.action, "what to do").required();
  options.argument("PATH", set.path, "a folder of the pool; to pin, FOLDER/A.*.Tj").required();
}

void describe(Options& options, ScrubOptions& scrub) {
  options.flag("--wait", scrub.wait, "return when all was checked").command_line_only();
  add_whole_pool(options, scrub);
}

void describe(Options& options, CheckOptions& check) { add_whole_pool(options, check); }

void describe(Options& options, RecoverOptions& recover) { add_whole_pool(options, recover); }

void describe(Options& options, GarbageOptions& garbage) {
  options.flag("--dry-run", garbage.dry_run, "only say what would be given back")
      .command_line_only();
  add_whole_pool(options, garbage);
}

void describe(Options& options, VerifyOptions& verify) {
  add_json(options, verify.json);
  options.argument("DIR", verify.path, "a drain directory, or a folder in it").required();
}

void describe(Options& options, StageInOptions& stage) {
  add_question(options, stage);
  options
      .text("--to", stage.to, "DIR",
            "a folder of the pool; without it where the pool shows DIR, or its root")
      .command_line_only();
  options.text("--set", stage.set, "A.*.Tj", "which; without it what the link latest names, or all")
      .command_line_only();
  options.flag("--all", stage.all, "all files, whatever latest says").command_line_only();
  options.count("--readers", stage.readers, 1, 1024, "files loaded at once").command_line_only();
  options.argument("DIR", stage.path, "a drain directory, or a folder in it").required();
}

/// Options of RestartOptions or RestartTestOptions.
template <class Restart>
void add_nodes(Options& options, Restart& restart) {
  options.flag("--job", restart.job, "load on all nodes of this Slurm or PBS job")
      .command_line_only();
  options
      .text("--hosts", restart.hosts, "FILE|NAME,...",
            "load on these hosts, one for each rank; a host that is there twice has two")
      .command_line_only();
  options
      .text("--rsh", restart.remote_shell, "COMMAND",
            "how to reach them: COMMAND HOST sh -s; without it as stdchk up does")
      .command_line_only();
}

void describe(Options& options, RestartTestOptions& restart) {
  add_question(options, restart);
  options.text("--set", restart.set, "A.*.Tj", "which; without it the newest whole one")
      .command_line_only();
  options.count("--readers", restart.readers, 1, 1024, "images loaded at once on this node");
  add_nodes(options, restart);
  options.argument("DIR", restart.path, "a folder of the pool").required();
}

void describe(Options& options, RestartOptions& restart) {
  add_pool(options, restart.pool);
  options.text("--set", restart.set, "A.*.Tj", "which; without it the newest whole one")
      .command_line_only();
  options.text("--to", restart.to, "DIR", "copy the images to this folder of each node")
      .command_line_only();
  options.count("--rank", restart.rank, 0, 1U << 24, "which this one is; without it as MPI says")
      .command_line_only();
  options.count("--ranks", restart.ranks, 1, 1U << 24, "of how many").command_line_only();
  options.text("--run", restart.run, "NAME", "that all ranks of this start share")
      .command_line_only();
  options.count("--timeout", restart.timeout_s, 1, 1000000, "seconds to wait for the others")
      .command_line_only();
  add_nodes(options, restart);
  options.text("--load", restart.load, "RANK,...", "of --ranks: the part of one node")
      .command_line_only();
  options.argument("DIR", restart.path, "a folder of the pool").required();
  options.arguments("COMMAND", restart.command,
                    "what to start when all ranks have their images, behind --");
}

void describe(Options& options, SimilarityCommand& similarity) {
  options
      .size("--sample", similarity.sample_bytes, 0, std::uint64_t{1} << 50,
            "of each image what slow techniques look at; 0 is all")
      .command_line_only();
  add_json(options, similarity.json);
  options.arguments("FILE", similarity.files,
                    "images of one series, in the order of their timesteps");
}

void describe(Options& options, TopOptions& top) {
  options.count("--interval", top.interval_s, 1, 3600, "seconds between two looks")
      .command_line_only();
  options.count("--count", top.count, 1, 1000000, "looks; without it until it is ended")
      .command_line_only();
  add_pool(options, top.pool);
  options.argument("PATH", top.path, "the mount, or anything below it");
}

void describe(Options& options, BenchOptions& bench) {
  add_pool(options, bench.pool);
  options.size("--size", bench.size, 4 * limits::kKiB, limits::kGiB * 1024, "of one image")
      .command_line_only();
  options.size("--block", bench.block_bytes, 4 * limits::kKiB, limits::kGiB, "of one write or read")
      .command_line_only();
  options.count("--ranks", bench.ranks, 1, 1024, "threads that write an image each, at once")
      .command_line_only();
  options.count("--rounds", bench.rounds, 1, 1000, "in turns; the median is shown")
      .command_line_only();
  add_json(options, bench.json);
  options.arguments(
      "DIRECTORY", bench.directories,
      "one in each file system that is to be measured; without any, the pool's mount");
}

void describe(Options& options, AdviseOptions& advise) {
  JobFigures& job = advise.job;
  options.count("--nodes", job.nodes, 2, 1U << 20, "of the job").command_line_only();
  options
      .size("--memory", job.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "that each node saves")
      .command_line_only();
  options
      .size("--lend", job.lend_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "that each benefactor node lends")
      .command_line_only();
  options
      .text("--mtbf", advise.node_mtbf, "TIME",
            "mean time between failures of one node, such as 1825d, which is the default")
      .command_line_only();
  options.rate("--node-rate", job.node_rate, "of one node into the pool, a second")
      .command_line_only();
  options
      .rate("--benefactor-rate", job.benefactor_rate,
            "that one benefactor node takes in, a second; 0: as --node-rate")
      .command_line_only();
  options.rate("--pfs-rate", job.pfs_rate, "of all nodes to the parallel file system, a second")
      .command_line_only();
  options
      .text("--mount", advise.mount, "DIR",
            "measure --node-rate by writing through this mount of a pool")
      .command_line_only();
  options
      .text("--target", advise.target, "DIR",
            "measure --pfs-rate by writing from this node into this directory, synced")
      .command_line_only();
  options
      .size("--measure-size", advise.measure_bytes, 4 * limits::kMiB, std::uint64_t{1} << 50,
            "most that a measurement has in a directory at once; it is removed")
      .command_line_only();
  options
      .count("--measure-time", advise.measure_s, 1, 3600,
             "seconds for each measurement; it writes less when that would take longer")
      .command_line_only();
  options
      .count("--stripe-width", job.stripe_width, 0, 1024,
             "benefactors that one image is spread over; 0: advise how many")
      .command_line_only();
  options
      .text("--compute", advise.compute, "TIME",
            "that the whole run computes, t_comp; 20h without it")
      .command_line_only();
  options
      .text("--communicate", advise.communicate, "TIME",
            "that the whole run communicates, t_comm; 4h without it")
      .command_line_only();
  options
      .text("--alpha", advise.alpha, "FACTOR",
            "how much longer communication takes in the whole run because images are drained, or "
            "copied, meanwhile, at least 1; without it worked out from the rates for the drain")
      .command_line_only();
  options
      .text("--coordination", advise.coordinate, "TIME",
            "until all ranks have stopped for a checkpoint, t_coord; 1s without it")
      .command_line_only();
  options
      .text("--contention", advise.contend, "TIME",
            "that ranks wait for one another besides, in each checkpoint, t_cont; 0s without it")
      .command_line_only();
  options.count("--table", advise.table_nodes, 8, 4096, "most nodes in the table")
      .command_line_only();
  options.text("--plot", advise.plot, "FILE", "draw the table as SVG").command_line_only();
  add_json(options, advise.json);
}

void describe(Options& options, MemberKeyOptions& key) {
  options.choice("--role", key.role, {"client", "benefactor"}, "what the member may do")
      .command_line_only();
  options
      .text("--secret-file", key.secret_file, "FILE",
            "file that holds the pool's secret; without it that of the pool that is up")
      .command_line_only();
  add_pool(options, key.pool);
  options.argument("PATH", key.path, "the mount of the pool, or anything below it");
}

void describe(Options& options, DoctorOptions& doctor) {
  add_question(options, doctor);
  options.argument("PATH", doctor.path, "the mount of the pool, or anything below it");
}

}  // namespace stdchk::tools
