#include "tools/pool/up.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "core/base/units.h"
#include "core/files/durable.h"
#include "core/files/mount_lock.h"
#include "core/files/own_folder.h"
#include "core/objects/object_place.h"
#include "core/policy/policy.h"
#include "metrics/listen_address.h"
#include "tools/base/running.h"
#include "tools/doctor/doctor.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/down.h"
#include "tools/pool/drain_place.h"
#include "tools/pool/members.h"
#include "tools/pool/starter.h"
#include "tools/pool/up_lock.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// Notes the drain directory of the pool, and makes it. The directory "" is none.
Outcome<void> make_drain_directory(const UpOptions& options, PoolRecord& record) {
  if (options.drain.directory.empty()) return {};
  if (options.encrypt) {
    return problem(
        "--encrypt and --drain exclude each other: the benefactors, which drain, have no key. Copy "
        "images out through a mount, for example by rsync");
  }
  record.drain = drain_place(options.drain);
  if (is_object_store(record.drain)) return check_object_store(options.drain);
  if (!options.drain.endpoint.empty()) {
    return problem("--drain-endpoint is for object stores: --drain s3://BUCKET/PREFIX");
  }
  if (is_below(record.drain, record.mount) || is_below(record.mount, record.drain)) {
    return problem(
        "--drain \"{}\" and --mount \"{}\" must not lie in each other: the drain directory must "
        "stay when the mount is gone",
        record.drain, record.mount);
  }
  // The directory's name must survive a crash like the files in it.
  (void)make_durable_directories(record.drain);
  std::error_code code;
  if (!fs::is_directory(record.drain, code) || ::access(record.drain.c_str(), W_OK) != 0) {
    return problem(
        "--drain \"{}\" is not a directory that this user can write to; make it, or choose "
        "another",
        record.drain);
  }
  return {};
}

/// "2026-01-31 23:59:59" in the time zone of this process.
std::string local_time() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

/// Makes the paths absolute, and makes the drain directory; starts nothing.
Outcome<PoolRecord> prepare(UpOptions& options) {
  PoolRecord record;
  if (options.mount.directory.empty())
    return problem("--mount is required; only --job has a default for it");
  // Resolves a link to the directory, so that programs and commands see the same path.
  record.mount = absolute_path_of_link(options.mount.directory);
  record.directory = options.records.state.empty() ? default_state_directory(record.mount)
                                                   : absolute_path(options.records.state);
  record.remote_shell = split_words(options.hosts.remote_shell);
  record.transport = options.network.transport;
  record.trusted_network = options.network.trusted;
  record.job_id = options.batch.job_id;
  record.undrained = options.records.undrained;
  if (!options.records.report.empty()) record.report = absolute_path(options.records.report);
  if (!options.records.safe_file.empty()) {
    if (options.drain.directory.empty())
      return problem("--safe-file needs --drain: a safe set is drained");
    options.records.safe_file = absolute_path(options.records.safe_file);
  }
  if (record.remote_shell.empty()) return problem("--rsh needs a command");
  if (options.mount.name_only && options.mount.on_hosts) {
    return problem("--no-mount and --mount-on-hosts exclude each other");
  }
  if (options.hosts.standby && (options.batch.all_nodes || options.batch.one_node)) {
    return problem(
        "--standby does not work in a batch job yet, because the job ends when a node is lost");
  }
  if (!options.records.metrics.empty()) {
    auto at = metrics::ListenAddress::parse(options.records.metrics);
    if (!at) return problem(at.error());
  }
  if (auto policy = parse_policy(options.images.policy); !policy) {
    return problem("--policy: {}", policy.error().text);
  }
  if (!options.lent.disk.empty()) options.lent.disk = absolute_path(options.lent.disk);
  if (!options.images.topology.empty())
    options.images.topology = absolute_path(options.images.topology);
  if (!options.lent.backing.empty() && options.lent.backing.find('/') != std::string::npos) {
    options.lent.backing = absolute_path(options.lent.backing);
  }
  if (auto made = make_drain_directory(options, record); !made) return problem(made.error());
  record.created = local_time();
  record.starter = this_process();
  record.starter_boot = boot_id();
  record.keeps_key = !options.mount.name_only;  // managers have no key
  auto spare = SpareRecord::make();
  if (!spare) return problem(spare.error());
  record.spare = std::move(*spare);
  return record;
}

/// Fails with the name of the pool that holds the mount directory.
Outcome<void> mount_in_use(const std::string& mount, const std::string& otherwise) {
  for (const Running& pool : running_pools()) {
    if (pool.mount != mount) continue;
    return problem(
        "another pool has {}: {}; see: stdchk status {}, or take it down with: stdchk down {}",
        mount, describe(pool), mount, mount);
  }
  return problem("{}; stdchk status {} may name the pool", otherwise, mount);
}

/// Makes a missing mount directory, and tests whether a mount is possible there.
Outcome<void> check_mount_point(const std::string& mount) {
  if (auto made = OwnFolder::make(mount, kMountRules); !made) {
    return problem("--mount: {}", made.error().text);
  }
  const auto lock = MountLock::take(mount, 1s);
  if (lock) return {};
  if (lock.error().error.code == Code::kBusy) return mount_in_use(mount, lock.error().text);
  return problem("--mount: {}", lock.error().text);
}

}  // namespace

Outcome<void> make_private(const std::string& directory) {
  if (auto made = OwnFolder::make(directory, kStateRules); !made)
    return problem("{}", made.error().text);
  return {};
}

Outcome<PoolRecord> start_pool(UpOptions options) {
  if (options.lent.benefactors == 0) options.lent.benefactors = options.batch.one_node ? 1 : 2;
  auto record = prepare(options);
  if (!record) return record;
  if (auto made = make_private(state_base()); !made) return problem(made.error());
  const auto lock = UpLock::take(*record);
  if (!lock) return problem(lock.error());
  auto cleaned =
      clean_leftovers({default_state_directory(record->mount), record->directory}, record->mount);
  if (!cleaned) return problem(cleaned.error());
  for (const auto& line : *cleaned) fmt::print(stderr, "stdchk: {}\n", line);
  if (!options.mount.name_only) {
    if (auto checked = check_mounting(); !checked) return problem(checked.error());
  }
  const bool lends = options.hosts.file.empty() && options.lent.disk.empty() &&
                     (!options.batch.one_node || is_listed(options.batch.lenders, node_name()));
  const std::uint64_t local_bytes =
      lends ? options.lent.memory_bytes * options.lent.benefactors : 0;
  if (auto checked = check_memory(local_bytes); !checked) return problem(checked.error());
  if (!options.mount.name_only) {  // last, because it may make the folder
    if (auto checked = check_mount_point(record->mount); !checked) return problem(checked.error());
  }
  if (auto made = make_private(record->directory); !made) return problem(made.error());
  // `stdchk down` removes this directory with all its content.
  drop_unfinished(record->directory);
  std::error_code code;
  if (!fs::is_empty(record->directory, code)) {
    return problem("{} is not empty and holds no pool; choose another --state", record->directory);
  }
  if (is_below(record->mount, record->directory) || is_below(record->drain, record->directory)) {
    return problem("--mount and --drain must not be in the state directory {}", record->directory);
  }
  if (!options.invocation.config_file.empty()) {
    ::setenv("STDCHK_CONFIG", absolute_path(options.invocation.config_file).c_str(), 1);
  }
  announce(record->directory, record->mount);
  if (auto saved = save(*record); !saved) return problem(saved.error());
  auto done = start_processes(options, *record);
  record->ready = done.has_value();
  if (done) done = save(*record);
  if (done) return record;
  (void)save(*record);
  const DownReport report = stop_pool(*record);
  std::string text = done.error().text;
  if (!report.logs.empty()) text += fmt::format("; the logs are kept in {}", report.logs);
  for (const auto& trouble : report.troubles) text += "; " + trouble;
  for (const Running& other : running_pools()) {
    if (other.mount == record->mount) text += "; the mount point is in use: " + describe(other);
  }
  return problem("{}", text);
}

std::string describe_pool(const PoolRecord& pool, const UpOptions& options) {
  // In a job the record describes this node's part alone.
  const auto benefactors =
      options.batch.all_nodes
          ? std::int64_t{options.batch.benefactor_nodes} * std::max(options.lent.benefactors, 1U)
          : std::ranges::count(pool.members, "benefactor", &Member::role);
  std::string text = fmt::format("The pool is up at {}{}: {} benefactor{}", pool.mount,
                                 options.mount.name_only ? " (a name only, without a mount)" : "",
                                 benefactors, benefactors == 1 ? "" : "s");
  if (options.hosts.file.empty()) {
    text += fmt::format(" of {}", format_bytes(options.lent.memory_bytes));
  }
  text += pool.drain.empty() ? ", without a drain directory.\n"
                             : fmt::format(", drained to {}.\n", drain_name(pool.drain));
  if (options.mount.name_only) {
    text += fmt::format(
        "  save              programs that use stdchk.h, with STDCHK_MANAGER={} and\n"
        "                    STDCHK_SECRET_FILE={}\n"
        "  load              stdchk restart --to DIR {}/FOLDER\n",
        pool.manager_address, pool.secret_file(), pool.mount);
  } else {
    text +=
        fmt::format("  save              any program, below {}; files named A.Ni.Tj are versions\n",
                    pool.mount);
  }
  text += fmt::format(
      "  look              stdchk ls -l {0}\n"
      "  is it safe yet    stdchk safe {0}/FILE\n"
      "  how is the pool   stdchk status {0}\n"
      "  take it down      stdchk down {1}{0}\n"
      "Logs and state: {2}\n",
      pool.mount, pool.drain.empty() ? "" : "--drain ", pool.directory);
  return text;
}

}  // namespace stdchk::tools
