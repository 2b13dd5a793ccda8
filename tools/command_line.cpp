#include "tools/command_line.h"

#include "core/base/units.h"
#include "core/runtime/confinement.h"
#include "transport/choice/factory.h"

namespace stdchk::tools {
namespace {

void add_json(Options& options, bool& json) {
  options.flag("--json", json, "print JSON").command_line_only();
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
  options.argument("PATH", chosen.path, "mount of the pool, or a path below it");
}

/// The hosts of a pool and its mount.
void add_hosts(Options& options, UpOptions& up) {
  options.text("--mount", up.mount.directory, "DIR",
               "mount the pool here; default with --job: /tmp/stdchk-UID-jobs/JOB.mount");
  options
      .flag("--no-mount", up.mount.name_only,
            "make no mount; --mount only names the pool, for programs that use the C library")
      .command_line_only();
  options.count("--benefactors", up.lent.benefactors, 1, 4096,
                "start this number of benefactors on each host; default: 2, with --job 1");
  options.size("--memory", up.lent.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
               "memory that each benefactor lends");
  options.text("--drain", up.drain.directory, "DIR",
               "copy images to this directory of the parallel file system, or to "
               "s3://BUCKET/PREFIX");
  options.text("--drain-endpoint", up.drain.endpoint, "URL",
               "address of an object store that is not Amazon's, such as https://minio.site:9000");
  options.rate("--drain-rate", up.drain.rate, "limit of each benefactor's drain, bytes a second");
  options.rate("--drain-total", up.drain.total_rate,
               "limit of all benefactors' drain together, bytes a second");
  options.on_off("--drain-yields", up.drain.yields,
                 "drain 8 MiB/s while somebody writes, unless memory fills up");
  options.text("--hosts", up.hosts.file, "FILE",
               "start the benefactors on these hosts; a line is NAME [address=ADDRESS] "
               "[memory=SIZE] [benefactors=N]");
  options.flag(
      "--standby", up.hosts.standby,
      "start a second manager, on the first of the hosts, which takes over from a lost manager");
  options.text("--rsh", up.hosts.remote_shell, "COMMAND", "reach the hosts by COMMAND HOST sh -s");
  options.flag("--mount-on-hosts", up.mount.on_hosts, "mount the pool on each host, too");
}

/// The transport, and how images are cut and stored.
void add_storage(Options& options, UpOptions& up) {
  options.text("--listen", up.network.listen, "HOST[,HOST...]",
               "listen on these addresses of this host; the manager takes the first");
  options.choice("--transport", up.network.transport, transport::choices(),
                 "move bytes by this transport", transport::former_choices());
  options.flag("--trusted-network", up.network.trusted,
               "send the content of images over TCP in clear, with a tag against changes");
  options.chunk_size("--chunk-size", up.images.chunk_bytes, "cut images into chunks of this size");
  options.count("--stripe-width", up.images.stripe_width, 0, 1024,
                "spread an image over this number of benefactors; 0: the manager's default");
  options.choice("--naming", up.images.naming, {"auto", "on", "off"},
                 "name chunks by content and store equal chunks once; auto: where that pays");
  options.choice(
      "--chunking", up.images.chunking, {"fixed", "content", "none"},
      "end chunks after a fixed length, or where their content says; none: fixed, without names");
  options.redundancy("--copies", up.images.copies,
                     "copies of each chunk on different hosts, or parity ec(k,m); 0: the manager's "
                     "default, one copy");
  options.text("--topology", up.images.topology, "FILE",
               "says which hosts fail together; a line is NAME [node=N] [rack=R] [switch=S]");
  options.rate("--copy-rate", up.upkeep.copy_rate,
               "limit of each benefactor's copying from others, bytes a second");
  options.rate("--scrub-rate", up.upkeep.scrub_rate,
               "limit of each benefactor's checking, bytes a second; 0: check only on request");
  options.on_off(
      "--reader-copies", up.upkeep.reader_copies,
      "let the hosts that read one file at the same time pass its chunks on to each other");
  options.count("--gc-period", up.upkeep.gc_period, 0, 86400,
                "seconds between garbage collections; 0: only by stdchk gc");
  options.size("--window", up.mount.window_bytes, limits::kMiB, std::uint64_t{1} << 40,
               "memory of the mount between write() and storage");
  options.choice("--close", up.mount.close, {"stored", "early", "redundant"},
                 "close() waits for one copy, for nothing, or for all copies");
  options.choice("--names", up.mount.names, {"stored", "leased"},
                 "answer changes of names at once in directories that a mount uses alone; stored: "
                 "answer when they are stored");
  options.text("--backing", up.lent.backing, "KIND",
               "kind of lent memory: anonymous, memfd, hugetlb, or a ramdisk directory");
  options.text("--disk", up.lent.disk, "DIR",
               "lend disk space below this directory instead of memory");
  options.size("--log-memory", up.lent.log_memory, 0, std::uint64_t{1} << 40,
               "part of each benefactor's memory for metadata, from which a lost manager is "
               "rebuilt; 0: as a full pool needs");
  options.on_off("--pressure", up.lent.pressure,
                 "a benefactor leaves when its host, or a control group, runs short of memory");
  options.size(
      "--pressure-reserve", up.lent.pressure_reserve, 0, std::uint64_t{1} << 50,
      "memory that must stay available to other programs; 0: 1/32 of the machine's, at most 2 GiB");
}

/// Options of a pool in a batch job.
void add_job(Options& options, UpOptions& up) {
  options.flag("--job", up.batch.all_nodes, "start the pool on the nodes of this Slurm or PBS job")
      .command_line_only();
  options.count("--benefactor-nodes", up.batch.benefactor_nodes, 1, 100000,
                "with --job: the last N nodes lend memory; default: all");
  options.text("--exchange", up.batch.exchange, "DIR",
               "with --job: a folder that all nodes share; default: the working directory");
  options.flag("--node", up.batch.one_node, "start the part of one node; --job uses this")
      .command_line_only();
  options.flag("--detach", up.batch.detach, "with --node: return when the part works")
      .command_line_only();
  options.text("--job-id", up.batch.job_id, "ID", "with --node: the job").command_line_only();
  options.text("--nodes", up.batch.nodes, "NAME,...", "with --node: the job's nodes")
      .command_line_only();
  options
      .text("--undrained", up.records.undrained, "FILE",
            "with --node: keep the list of undrained images in this file")
      .command_line_only();
  options.text("--lenders", up.batch.lenders, "NAME,...", "with --node: the nodes that lend memory")
      .command_line_only();
}

/// The times of the application that the advice needs.
void add_times(Options& options, AdviseOptions& advise) {
  options
      .text("--compute", advise.compute, "TIME",
            "computing time of the whole run, t_comp; default: 20h")
      .command_line_only();
  options
      .text("--communicate", advise.communicate, "TIME",
            "communication time of the whole run, t_comm; default: 4h")
      .command_line_only();
  options
      .text("--alpha", advise.alpha, "FACTOR",
            "factor, at least 1, by which drain and copies lengthen communication; default: "
            "computed from the rates for the drain")
      .command_line_only();
  options
      .text("--coordination", advise.coordinate, "TIME",
            "time until all ranks have stopped for a checkpoint, t_coord; default: 1s")
      .command_line_only();
  options
      .text("--contention", advise.contend, "TIME",
            "time that ranks wait for each other in each checkpoint, t_cont; default: 0s")
      .command_line_only();
}

}  // namespace

void describe(Options& options, UpOptions& up) {
  add_hosts(options, up);
  add_storage(options, up);
  options.text("--policy", up.images.policy, "SETTINGS",
               "policies of folders that set nothing themselves: KEY=VALUE,KEY=VALUE...");
  options.flag("--allow-other", up.mount.allow_other, "let other users use the mount");
  options.flag("--devices", up.mount.devices,
               "open device nodes and honour set-ID bits in the mount; only for root");
  options.flag("--encrypt", up.encrypt,
               "encrypt images, so that benefactors cannot read them; excludes --drain");
  options.text("--report", up.records.report, "FILE",
               "add the report card to this file at the end; default in a job: stdchk-ID.out where "
               "the nodes meet");
  options.text("--safe-file", up.records.safe_file, "FILE",
               "keep the newest drained set and its time in this file");
  options.text("--state", up.records.state, "DIR", "keep the pool's state, logs and secret here");
  options.text("--metrics", up.records.metrics, "[ADDRESS:]PORT",
               "serve metrics to Prometheus: the first daemon here, the others at the next ports; "
               "port 0: free ports");
  options.choice("--log-level", up.records.log_level, {"debug", "info", "warning", "error"},
                 "least important lines that the daemons log");
  options.flag("--json", up.invocation.json, "print what was started as JSON").command_line_only();
  options
      .flag("--export", up.invocation.shell_lines,
            "print shell lines that set STDCHK_MOUNT; with --job they also drain the pool and take "
            "it down when the script ends")
      .command_line_only();
  add_job(options, up);
}

void describe(Options& options, DownOptions& down) {
  options.flag("--drain", down.drain, "drain everything first").command_line_only();
  options
      .flag("--success", down.success,
            "for a job that has succeeded: apply the policy \"end\", then drain the rest")
      .command_line_only();
  options
      .count("--timeout", down.timeout_s, 0, 1000000,
             "seconds that the drain may take; 0: no limit")
      .command_line_only();
  options
      .text("--node-of", down.node_of, "ID", "end only what this batch job has left on this node")
      .command_line_only();
  add_pool(options, down.pool);
  options.argument("PATH", down.path, "mount of the pool, or a path below it");
}

void describe(Options& options, StatusOptions& status) {
  options
      .flag("--prometheus-targets", status.targets,
            "print the addresses of the daemons' metrics as JSON for Prometheus's file_sd_configs")
      .command_line_only();
  options.flag("--prometheus", status.prometheus, "print metrics as text for Prometheus")
      .command_line_only();
  add_whole_pool(options, status);
}

void describe(Options& options, ReportOptions& report) {
  options
      .flag("--at-end", report.ends,
            "print the report of a pool that is about to end; `down` uses this")
      .command_line_only();
  options
      .text(
          "--undrained", report.undrained, "FILE",
          "keep the list of undrained images in this file, and the manifests, while the pool lives")
      .command_line_only();
  options
      .text("--safe-file", report.safe_file, "FILE",
            "keep the newest drained set and its time in this file while the pool lives")
      .command_line_only();
  options
      .flag("--lost", report.lost,
            "print, once, the files that a job lost with its pool; for a manager that is gone")
      .command_line_only();
  options.flag("--unconfined", report.unconfined, kUnconfinedHelp);
  add_whole_pool(options, report);
}

void describe(Options& options, ListOptions& list) {
  options.flag("-l,--long", list.details, "show versions, sizes, chunks, benefactors, drain")
      .command_line_only();
  options.flag("--aborted", list.aborted, "list writes that ended without a commit")
      .command_line_only();
  add_question(options, list);
  options.argument("PATH", list.path, "a file or directory of the pool");
}

void describe(Options& options, StatOptions& stat) {
  add_question(options, stat);
  options.argument("PATH", stat.path, "a file or directory of the pool").required();
}

void describe(Options& options, DrainOptions& drain) {
  options.flag("--wait", drain.wait, "return when the images are drained and verified")
      .command_line_only();
  options
      .count("--timeout", drain.timeout_s, 0, 1000000,
             "seconds that the wait may take; 0: no limit")
      .command_line_only();
  options
      .text("--within", drain.within, "TIME",
            "drain the newest complete sets first, return after this time at the latest, such as "
            "90s, and say what is left")
      .command_line_only();
  options
      .flag("--no-manifest", drain.no_manifest,
            "with --wait: write no manifests, because another waiting command does")
      .command_line_only();
  add_question(options, drain);
  options.argument("PATH", drain.path, "drain only what is below this path");
}

void describe(Options& options, SafeOptions& safe) {
  add_question(options, safe);
  options.argument("PATH", safe.path, "a file, or a directory for all files below it").required();
}

void describe(Options& options, PolicyOptions& policy) {
  add_question(options, policy);
  options.argument("get|set|suggest", policy.action, "what to do").required();
  options.argument("DIR", policy.path, "a folder of the pool").required();
  options.arguments("KEY=VALUE", policy.settings, "settings; the value inherit removes a setting");
}

void describe(Options& options, SetOptions& set) {
  add_question(options, set);
  options.argument("list|pin|unpin|commit", set.action, "what to do").required();
  options
      .argument("PATH", set.path,
                "a folder of the pool; for pin and unpin FOLDER/SET; for commit a directory that "
                "is a set")
      .required();
}

void describe(Options& options, ScrubOptions& scrub) {
  options.flag("--wait", scrub.wait, "return when all chunks are checked").command_line_only();
  add_whole_pool(options, scrub);
}

void describe(Options& options, CheckOptions& check) { add_whole_pool(options, check); }

void describe(Options& options, RecoverOptions& recover) { add_whole_pool(options, recover); }

void describe(Options& options, GarbageOptions& garbage) {
  options.flag("--dry-run", garbage.dry_run, "print the plan only").command_line_only();
  add_whole_pool(options, garbage);
}

void describe(Options& options, VerifyOptions& verify) {
  add_json(options, verify.json);
  options.text("--drain-endpoint", verify.endpoint, "URL",
               "address of an object store that is not Amazon's");
  options.argument("DIR", verify.path, "a drain directory, a folder in it, or s3://BUCKET/PREFIX")
      .required();
}

/// Options of RestartOptions, RestartTestOptions or StageInOptions.
template <class Restart>
void add_nodes(Options& options, Restart& restart) {
  options.flag("--job", restart.job, "load on all nodes of this Slurm or PBS job")
      .command_line_only();
  options
      .text("--hosts", restart.hosts, "FILE|NAME,...",
            "load on these hosts, one entry for each rank")
      .command_line_only();
  options
      .text("--rsh", restart.remote_shell, "COMMAND",
            "reach the hosts by COMMAND HOST sh -s; default: as stdchk up does")
      .command_line_only();
}

void add_multicast(Options& options, std::string& multicast) {
  options
      .choice(
          "--multicast", multicast, {"auto", "always", "never"},
          "send what all nodes load once, to all of them; auto: when more than two nodes share a "
          "benefactor")
      .command_line_only();
}

void describe(Options& options, StageInOptions& stage) {
  add_question(options, stage);
  options
      .text("--to", stage.to, "DIR",
            "load into this folder of the pool; default: where the pool shows DIR, or its root")
      .command_line_only();
  options
      .text("--set", stage.set, "SET",
            "set to load, as stdchk set list names it; default: the newest complete set of each "
            "folder, or all")
      .command_line_only();
  options.flag("--all", stage.all, "load all files of all sets").command_line_only();
  options
      .count("--readers", stage.readers, 1, 1024,
             "number of files, or of requests to an object store, at once")
      .command_line_only();
  options
      .text("--to-all", stage.to_all, "DIR",
            "then copy the set to this folder of all nodes of --job or --hosts")
      .command_line_only();
  add_nodes(options, stage);
  add_multicast(options, stage.multicast);
  options.text("--drain-endpoint", stage.endpoint, "URL",
               "address of an object store that is not Amazon's");
  options.argument("DIR", stage.path, "a drain directory, a folder in it, or s3://BUCKET/PREFIX")
      .required();
}

void describe(Options& options, RestartTestOptions& restart) {
  add_question(options, restart);
  options
      .text("--set", restart.set, "SET",
            "set to load, as stdchk set list names it; default: the newest complete set")
      .command_line_only();
  options.count("--readers", restart.readers, 1, 1024,
                "number of images that are loaded at once on this node");
  add_nodes(options, restart);
  options.argument("DIR", restart.path, "a folder of the pool").required();
}

void describe(Options& options, RestartOptions& restart) {
  add_pool(options, restart.pool);
  options
      .text("--set", restart.set, "SET",
            "set to load, as stdchk set list names it; default: the newest complete set")
      .command_line_only();
  options
      .text("--to", restart.to, "DIR",
            "copy the images, or the whole directory, to this folder of each node")
      .command_line_only();
  options
      .count("--rank", restart.rank, 0, 1U << 24,
             "rank of this process; default: from the launcher's environment")
      .command_line_only();
  options
      .count("--ranks", restart.ranks, 1, 1U << 24,
             "number of ranks; default: from the launcher's environment")
      .command_line_only();
  options.text("--run", restart.run, "NAME", "name of this start, the same for all its ranks")
      .command_line_only();
  options.count("--timeout", restart.timeout_s, 1, 1000000, "seconds to wait for the other ranks")
      .command_line_only();
  options
      .flag("--lazy", restart.lazy,
            "load memory while a job of stdchk run goes on, and first the pages it touches")
      .command_line_only();
  options
      .count("--nodes", restart.nodes, 0, 64,
             "run a job of stdchk run on that many daemons on this host; 0: where it ran")
      .command_line_only();
  add_nodes(options, restart);
  options
      .flag("--all-images", restart.all_images,
            "with --to: copy the images of all ranks to each node")
      .command_line_only();
  add_multicast(options, restart.multicast);
  options
      .text("--load", restart.load, "RANK,...",
            "load the images of these ranks of --ranks: the part of one node")
      .command_line_only();
  options
      .text("--cast", restart.cast, "NAME",
            "with --load: first take what the sender of this offer in the pool sends")
      .command_line_only();
  options.argument("DIR|JOB", restart.path, "a folder of the pool, or a job of stdchk run")
      .required();
  options.arguments("COMMAND", restart.command,
                    "after --: start this command when all ranks have their images");
}

void describe(Options& options, SimilarityCommand& similarity) {
  options
      .size("--sample", similarity.sample_bytes, 0, std::uint64_t{1} << 50,
            "bytes of each image that slow techniques examine; 0: all")
      .command_line_only();
  add_json(options, similarity.json);
  options.arguments("FILE", similarity.files,
                    "images of one series, in the order of their timesteps");
}

void describe(Options& options, TopOptions& top) {
  options.count("--interval", top.interval_s, 1, 3600, "seconds between two pictures")
      .command_line_only();
  options
      .count("--count", top.count, 1, 1000000,
             "number of pictures; default: until a key or signal ends it")
      .command_line_only();
  add_pool(options, top.pool);
  options.argument("PATH", top.path, "mount of the pool, or a path below it");
}

void describe(Options& options, BenchOptions& bench) {
  add_pool(options, bench.pool);
  options.size("--size", bench.size, 4 * limits::kKiB, limits::kGiB * 1024, "size of one image")
      .command_line_only();
  options
      .size("--block", bench.block_bytes, 4 * limits::kKiB, limits::kGiB,
            "size of one write or read")
      .command_line_only();
  options
      .count("--ranks", bench.ranks, 1, 1024, "number of threads that write an image each at once")
      .command_line_only();
  options.count("--rounds", bench.rounds, 1, 1000, "number of rounds; the median is shown")
      .command_line_only();
  add_json(options, bench.json);
  options.arguments("DIRECTORY", bench.directories,
                    "one directory in each file system to measure; default: the pool's mount");
}

void describe(Options& options, AdviseOptions& advise) {
  JobFigures& job = advise.job;
  options.count("--nodes", job.nodes, 2, 1U << 20, "number of the job's nodes").command_line_only();
  options
      .size("--memory", job.memory_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "memory that each node saves")
      .command_line_only();
  options
      .size("--lend", job.lend_bytes, limits::kMiB, std::uint64_t{1} << 50,
            "memory that each benefactor node lends")
      .command_line_only();
  options
      .text("--mtbf", advise.node_mtbf, "TIME",
            "mean time between failures of one node; default: 1825d")
      .command_line_only();
  options.rate("--node-rate", job.node_rate, "rate of one node into the pool, bytes a second")
      .command_line_only();
  options
      .rate("--benefactor-rate", job.benefactor_rate,
            "rate that one benefactor node takes in, bytes a second; 0: as --node-rate")
      .command_line_only();
  options
      .rate("--pfs-rate", job.pfs_rate,
            "rate of all nodes to the parallel file system, bytes a second")
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
            "most bytes that a measurement keeps in a directory at once; it removes them")
      .command_line_only();
  options
      .count("--measure-time", advise.measure_s, 1, 3600,
             "seconds for each measurement, which ends early at this limit")
      .command_line_only();
  options
      .count("--stripe-width", job.stripe_width, 0, 1024,
             "benefactors that one image is spread over; 0: advise a number")
      .command_line_only();
  add_times(options, advise);
  options.count("--table", advise.table_nodes, 8, 4096, "largest number of nodes in the table")
      .command_line_only();
  options.text("--plot", advise.plot, "FILE", "draw the table as SVG").command_line_only();
  add_json(options, advise.json);
}

void describe(Options& options, MemberKeyOptions& key) {
  options.choice("--role", key.role, {"client", "benefactor", "node"}, "role of the member")
      .command_line_only();
  options
      .text("--secret-file", key.secret_file, "FILE",
            "file with the pool's secret; default: the secret of the running pool")
      .command_line_only();
  add_pool(options, key.pool);
  options.argument("PATH", key.path, "mount of the pool, or a path below it");
}

void describe(Options& options, DoctorOptions& doctor) {
  add_question(options, doctor);
  options.argument("PATH", doctor.path, "mount of the pool, or a path below it");
}

void describe(Options& options, RunOptions& run) {
  add_pool(options, run.pool);
  options
      .text("--up", run.up, "OPTIONS",
            "bring up a pool of the job's own by stdchk up OPTIONS, and take it down at the end; "
            "excludes --pool")
      .command_line_only();
  options.text("--name", run.name, "JOB", "name of the job; default: a new name")
      .command_line_only();
  options.count("-n,--ranks", run.ranks, 1, 4096, "containers, one for each rank")
      .command_line_only();
  options.count("--nodes", run.hosts.nodes, 1, 64, "daemons of containers on this host")
      .command_line_only();
  options
      .text("--hosts", run.hosts.file, "FILE",
            "run on these hosts: a line NAME [address=ADDRESS] for each")
      .command_line_only();
  options.flag("--job", run.hosts.in_job, "run on the nodes of this Slurm or PBS job")
      .command_line_only();
  options.text("--rsh", run.hosts.remote_shell, "COMMAND", "reach the hosts by COMMAND HOST TEXT");
  options.count("--spares", run.hosts.spares, 0, 4096,
                "number of nodes that wait, idle, to replace a lost node");
  options.count("--retries", run.retries, 0, 1000000,
                "number of restarts of the job after lost nodes");
  options.text("--every", run.pace.every, "TIME",
               "time between two checkpoints, such as 10m, or never; default: as --advise");
  options.flag("--advise", run.pace.advise,
               "save first after a minute, then as often as the cost model of stdchk advise says");
  options.text("--mtbf", run.pace.mtbf, "TIME",
               "mean time between failures of one node, for --advise; default: 1825d");
  options.text("--policy", run.policy, "KEY=VALUE,...",
               "policy of the job's sets, such as copies=2; default: keep=2");
  options.flag("--lazy", run.lazy,
               "at each restart, also after a lost node, load memory while the job runs");
  options.text("--root", run.root, "DIR",
               "base file system of the containers, or an OCI bundle, the same on all nodes");
  options.text("--criu", run.criu, "PROGRAM", "the program that saves processes");
  options.size("--box-memory", run.limits.memory_bytes, 0, std::uint64_t{1} << 50,
               "largest memory of each container; default: no limit");
  options.count("--box-cpu", run.limits.cpu_percent, 0, 1000000,
                "largest processor time of each container, in percent of one processor");
  options.count("--box-processes", run.limits.processes, 0, 4000000,
                "largest number of processes and threads in each container");
  options.count("--lease", run.lease_s, 2, 3600,
                "seconds without the coordinator after which a node ends its containers");
  options
      .text("--restart", run.from, "DIR",
            "continue from the newest complete set in this folder of the pool; needs --name")
      .command_line_only();
  options.text("--set", run.set, "T5", "with --restart: continue from this set")
      .command_line_only();
  options.arguments("COMMAND", run.program, "the program, after --: mpiexec -n 4 ./program");
}

void describe(Options& options, JobsOptions& jobs) {
  add_json(options, jobs.json);
  options
      .text("--forget", jobs.forget, "JOB",
            "remove this host's record of a job that does not run; its sets stay")
      .command_line_only();
}

void describe(Options& options, CheckpointOptions& checkpoint) {
  options.count("--timeout", checkpoint.timeout_s, 1, 1000000, "seconds to wait for the set")
      .command_line_only();
  options.argument("JOB", checkpoint.job, "a running job, as stdchk jobs shows it").required();
}

void describe(Options& options, EvacuateOptions& evacuate) {
  options.text("--job", evacuate.job, "JOB", "only this job's containers").command_line_only();
  options.count("--timeout", evacuate.timeout_s, 1, 1000000, "seconds to wait for the move")
      .command_line_only();
  options.argument("NODE", evacuate.node, "a node, as stdchk jobs shows it").required();
}

}  // namespace stdchk::tools
