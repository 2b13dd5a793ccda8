#include "tools/pool/daemon_jobs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/policy/redundancy.h"
#include "metrics/listen_address.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// Memory of the metadata log for each chunk. A record takes 120 bytes, and more with parity; a log
/// fills three quarters of one half of its memory (docs/decisions/0015-metadata-log.md).
constexpr std::uint64_t kLogBytesPerChunk = 400;
/// The log gets at most one part in this number of a benefactor's memory.
constexpr std::uint64_t kLogShareMost = 16;

}  // namespace

std::string key_name(const std::string& job) { return job + ".member"; }

void add_flag(std::vector<std::string>& arguments, const char* flag, const std::string& value) {
  if (value.empty() || value == "0") return;
  arguments.emplace_back(flag);
  arguments.push_back(value);
}

Outcome<void> DaemonJobs::find_programs() {
  for (auto [name, path] : {std::pair{"stdchk-manager", &manager_program_},
                            std::pair{"stdchk-benefactor", &benefactor_program_},
                            std::pair{"stdchk-mount", &mount_program_}}) {
    auto found = find_program(name, options_.invocation.program);
    if (!found) return problem(found.error());
    *path = *found;
  }
  return {};
}

Job DaemonJobs::manager() {
  Job manager = job("manager", "manager", manager_program_, record_.directory);
  manager.ready_file = record_.address_file();
  manager.arguments = {
      "--state",        record_.directory + "/manager", "--secret-file", record_.secret_file(),
      "--address-file", record_.address_file(),         "--listen",      manager_listen()};
  add_flag(manager.arguments, "--drain", record_.drain);
  add_flag(manager.arguments, "--drain-rate", std::to_string(options_.drain.rate));
  add_flag(manager.arguments, "--drain-total", std::to_string(options_.drain.total_rate));
  if (!options_.drain.yields) {
    manager.arguments.insert(manager.arguments.end(), {"--drain-yields", "off"});
  }
  add_flag(manager.arguments, "--chunk-size", std::to_string(options_.images.chunk_bytes));
  add_flag(manager.arguments, "--stripe-width", std::to_string(options_.images.stripe_width));
  add_flag(manager.arguments, "--naming", options_.images.naming);
  add_flag(manager.arguments, "--policy", options_.images.policy);
  add_flag(manager.arguments, "--chunking", options_.images.chunking);
  add_flag(manager.arguments, "--copies",
           options_.images.copies == 0 ? "0" : redundancy_text(options_.images.copies));
  add_flag(manager.arguments, "--topology", options_.images.topology);
  add_flag(manager.arguments, "--copy-rate", std::to_string(options_.upkeep.copy_rate));
  manager.arguments.insert(manager.arguments.end(),
                           {"--scrub-rate", std::to_string(options_.upkeep.scrub_rate),
                            "--gc-period", std::to_string(options_.upkeep.gc_period)});
  if (!options_.upkeep.reader_copies) {
    manager.arguments.insert(manager.arguments.end(), {"--reader-copies", "off"});
  }
  add_reporting(manager, {}, record_.directory);
  return manager;
}

Job DaemonJobs::standby(const Host* host) {
  const std::string directory = host == nullptr ? record_.directory : directory_on(host->name);
  Job standby = job("standby", "standby", manager_program_, directory);
  standby.arguments.assign(record_.manager_command.begin() + 1, record_.manager_command.end());
  standby.arguments.insert(standby.arguments.end(), {"--standby", record_.manager_address});
  const std::string listens =
      host == nullptr ? manager_listen() : host->address.substr(0, host->address.find(','));
  standby.change("--state", directory + "/standby");
  standby.change("--secret-file", directory + "/secret");
  standby.change("--address-file", standby.ready_file);
  standby.change("--listen", listens);
  standby.change("--metrics", next_metrics(host == nullptr ? "" : host->name));
  standby.change("--metrics-file", metrics_file(directory, standby.name));
  return standby;
}

Job DaemonJobs::benefactor(std::uint32_t number, std::uint64_t memory_bytes,
                           const std::string& address, const std::string& host,
                           const std::string& directory) {
  const std::string name = fmt::format("benefactor.{}", number);
  Job one = job("benefactor", name, benefactor_program_, directory);
  one.arguments = {"--manager",     record_.manager_address,
                   "--secret-file", directory + "/" + key_name(name),
                   "--ready-file",  one.ready_file,
                   "--memory",      std::to_string(memory_bytes),
                   "--listen",      address,
                   "--transport",   options_.network.transport};
  add_flag(one.arguments, "--backing", options_.lent.backing);
  add_flag(one.arguments, "--disk",
           options_.lent.disk.empty() ? "" : options_.lent.disk + "/" + name);
  if (const std::uint64_t log_bytes = log_memory(memory_bytes); log_bytes > 0) {
    // A size that the user gives is fixed. Otherwise the log's memory grows as needed.
    const bool asked = options_.lent.log_memory > 0;
    const std::uint64_t most = std::max(memory_bytes / limits::kLogGrowthShare, log_bytes);
    one.arguments.insert(one.arguments.end(),
                         {"--log-memory", std::to_string(log_bytes), "--log-memory-max",
                          std::to_string(asked ? log_bytes : most)});
  }
  if (options_.network.trusted) one.arguments.emplace_back("--trusted-network");
  if (!options_.lent.pressure) {
    one.arguments.insert(one.arguments.end(), {"--pressure", "off"});
  }
  add_flag(one.arguments, "--pressure-reserve", std::to_string(options_.lent.pressure_reserve));
  add_reporting(one, host, directory);
  return one;
}

Job DaemonJobs::benefactor(std::uint32_t number) {
  return benefactor(number, options_.lent.memory_bytes, listen(), {}, record_.directory);
}

Job DaemonJobs::mount(const std::string& host, const std::string& directory) {
  Job one = job("mount", "mount", mount_program_, directory);
  one.mount = record_.mount;
  one.arguments = {"--manager",     record_.manager_address,
                   "--secret-file", directory + "/" + key_name(one.name),
                   "--ready-file",  one.ready_file,
                   "--transport",   options_.network.transport};
  add_flag(one.arguments, "--window", std::to_string(options_.mount.window_bytes));
  add_flag(one.arguments, "--close", options_.mount.close);
  add_flag(one.arguments, "--names", options_.mount.names);
  add_reporting(one, host, directory);
  if (options_.mount.allow_other) one.arguments.emplace_back("--allow-other");
  if (options_.mount.devices) one.arguments.emplace_back("--devices");
  if (options_.encrypt) {
    one.arguments.insert(one.arguments.end(), {"--encrypt", "--key-file", directory + "/key"});
  }
  one.arguments.push_back(record_.mount);
  return one;
}

std::string DaemonJobs::directory_on(const std::string& host) const {
  const std::string key = fs::path(default_state_directory(record_.mount)).filename();
  return fmt::format("/tmp/stdchk-{}-hosts/{}/{}", ::getuid(), key, host);
}

Job DaemonJobs::job(const std::string& role, const std::string& name, const std::string& program,
                    const std::string& directory) const {
  Job job;
  job.role = role;
  job.name = name;
  job.program = program;
  job.ready_file = directory + "/" + name + ".ready";
  return job;
}

std::string DaemonJobs::listen() const {
  if (!options_.network.listen.empty()) return options_.network.listen;
  if (hosts_.empty() && !options_.batch.one_node) return "127.0.0.1";
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

/// The manager has one address; benefactors may have several.
std::string DaemonJobs::manager_listen() const {
  const std::string all = listen();
  return all.substr(0, all.find(','));
}

/// The metrics address of the next daemon on that host; ports count up from the first.
std::string DaemonJobs::next_metrics(const std::string& host) {
  if (options_.records.metrics.empty()) return {};
  auto at = metrics::ListenAddress::parse(options_.records.metrics);
  STDCHK_ASSERT(at.has_value());  // prepare() has checked it
  if (at->port != 0) at->port = static_cast<std::uint16_t>(at->port + metrics_given_[host]++);
  return at->text();
}

void DaemonJobs::add_reporting(Job& job, const std::string& host, const std::string& directory) {
  add_flag(job.arguments, "--log-level", options_.records.log_level);
  add_flag(job.arguments, "--metrics", next_metrics(host));
  if (!options_.records.metrics.empty()) {
    add_flag(job.arguments, "--metrics-file", metrics_file(directory, job.name));
  }
}

std::uint64_t DaemonJobs::pool_bytes() const {
  if (hosts_.empty()) {
    const std::size_t nodes =
        options_.batch.one_node ? split(options_.batch.lenders, ',').size() : 1;
    return options_.lent.memory_bytes * options_.lent.benefactors * nodes;
  }
  return std::accumulate(hosts_.begin(), hosts_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Host& host) {
                           return sum + host.memory_bytes * host.benefactors;
                         });
}

/// Returns the log memory that a benefactor reserves at its start. 0: the benefactor's default
/// suffices for a pool full of large images.
std::uint64_t DaemonJobs::log_memory(std::uint64_t memory_bytes) const {
  if (options_.lent.log_memory > 0) return options_.lent.log_memory;
  const std::uint64_t chunk_bytes =
      options_.images.chunk_bytes > 0 ? options_.images.chunk_bytes : limits::kChunkBytesDefault;
  const std::uint64_t needed = pool_bytes() / chunk_bytes * kLogBytesPerChunk;
  if (needed <= memory_bytes / limits::kLogShare) return 0;
  return std::min(needed, memory_bytes / kLogShareMost);
}

}  // namespace stdchk::tools
