#include "tools/pool/up.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/crypto/secret.h"
#include "core/files/durable.h"
#include "core/files/mount_lock.h"
#include "core/files/own_folder.h"
#include "core/files/pool_files.h"
#include "core/policy/policy.h"
#include "core/policy/redundancy.h"
#include "metrics/listen_address.h"
#include "tools/base/connection.h"
#include "tools/base/hosts.h"
#include "tools/base/mounts.h"
#include "tools/base/running.h"
#include "tools/doctor/doctor.h"
#include "tools/drained/undrained.h"
#include "tools/pool/down.h"
#include "tools/pool/job.h"
#include "tools/pool/meeting.h"
#include "tools/pool/member_key.h"
#include "tools/pool/members.h"
#include "tools/pool/up_lock.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using transport::secure::Role;

constexpr auto kJoinPatience = 60s;  ///< wait for the first node of a job
/// Memory of the metadata log for each chunk. A record takes 120 bytes, and more with parity; a log
/// fills three quarters of one half of its memory (docs/decisions/0015-metadata-log.md).
constexpr std::uint64_t kLogBytesPerChunk = 400;
/// The log gets at most one part in this number of a benefactor's memory.
constexpr std::uint64_t kLogShareMost = 16;

/// Makes a new file in the state directory.
Outcome<void> put_file(const std::string& directory, const std::string& name,
                       const std::string& text) {
  auto folder = open_state(directory);
  if (!folder) return problem(folder.error());
  if (const Status written = folder->write_new(name, text); !written) {
    return failed(directory + "/" + name + " cannot be written", written.error());
  }
  return {};
}

Outcome<std::string> make_secret(const std::string& directory, const std::string& name) {
  std::array<std::byte, 16> bytes;
  fill_random(bytes);
  std::string text = hex_text(bytes);
  if (auto put = put_file(directory, name, text + "\n"); !put) return problem(put.error());
  return text;
}

/// The name of a member's key file in its state directory.
std::string key_name(const std::string& job) { return job + ".member"; }

Role role_of(const Job& job) {
  return job.role == "benefactor" ? Role::kBenefactor : Role::kClient;
}

/// The name of the file with the keys of one node's members, left by the job's first node. It has
/// pairs of lines: a file's name and its text.
std::string keys_name(const std::string& node) { return node + ".keys"; }

bool is_listed(const std::string& names, const std::string& name) {
  return std::ranges::any_of(split(names, ','), [&](const std::string& word) {
    return word == name || word.substr(0, word.find('.')) == name.substr(0, name.find('.'));
  });
}

/// A Starter starts a pool, or one node's part of a job's pool, step by step, and can undo the
/// steps.
class Starter {
 public:
  Starter(UpOptions& options, PoolRecord& record) : options_(options), record_(record) {}

  Outcome<void> run() {
    if (!options_.hosts_file.empty()) {
      auto hosts = read_hosts(options_.hosts_file, options_.memory_bytes, options_.benefactors);
      if (!hosts) return problem(hosts.error());
      hosts_ = std::move(*hosts);
    }
    if (auto done = find_programs(); !done) return done;
    if (options_.node) return run_node();
    if (auto done = make_secrets(); !done) return done;
    if (auto done = start_manager(); !done) return done;
    if (options_.standby) {
      if (auto done = start_standby(); !done) return done;
    }
    auto done = hosts_.empty() ? start_local_benefactors() : start_hosts();
    if (!done) return done;
    done = start_mount();
    return !done || options_.safe_file.empty() ? done : start_recorder();
  }

 private:
  /// Runs one node's part. The first node of the job has the manager, and publishes its address and
  /// the nodes' keys.
  Outcome<void> run_node() {
    const std::string name = node_name();
    const std::string first = options_.nodes.substr(0, options_.nodes.find(','));
    auto done = is_listed(first, name) ? begin_job() : join_job();
    if (!done) return done;
    if (is_listed(options_.lenders, name)) done = start_local_benefactors();
    if (!done) return done;
    done = start_mount();
    const bool records = !record_.undrained.empty() || !options_.safe_file.empty();
    return !done || !records || !is_listed(first, name) ? done : start_recorder();
  }

  /// Starts the recorder. It keeps files for the time after the pool: the list of undrained files,
  /// and the newest safe set.
  Outcome<void> start_recorder() {
    Job recorder;
    recorder.role = recorder.name = "recorder";
    auto program = find_program("stdchk", options_.invoked_as);
    if (!program) return problem(program.error());
    recorder.program = absolute_path(*program);
    recorder.arguments = {"report", "--pool", record_.directory};
    add(recorder.arguments, "--undrained", record_.undrained);
    add(recorder.arguments, "--safe-file", options_.safe_file);
    auto member = start_local(recorder, record_.directory);
    if (!member) return problem(member.error());
    record_.members.push_back(*member);
    return save(record_);
  }

  Outcome<void> begin_job() {
    tell_losses(record_.undrained, record_.drain, record_.report);
    if (auto made = OwnFolder::make(options_.exchange, kExchangeRules); !made) {
      return problem("{}", made.error());
    }
    if (auto done = make_secrets(); !done) return done;
    if (auto done = start_manager(); !done) return done;
    // Each file is readable by this user only, and is removed when all nodes have read it.
    const Meeting meeting(options_.exchange);
    for (const auto& [name, text] : mount_files_) {
      if (auto handed = meeting.hand_over(name, text + "\n"); !handed) return handed;
    }
    for (const std::string& node : split(options_.nodes, ',')) {
      if (is_listed(node, node_name())) continue;
      auto handed = meeting.hand_over(keys_name(node), keys_of(node));
      if (!handed) return handed;
    }
    return meeting.publish_manager(record_.manager_address);
  }

  /// The keys for another node's daemons and commands.
  std::string keys_of(const std::string& node) const {
    const auto line = [](const std::string& name, const std::string& key) {
      return name + " " + key;
    };
    std::string text = line("secret", keys_->make(Role::kClient));
    text += line(key_name("mount"), keys_->make(Role::kClient));
    for (std::uint32_t i = 0; is_listed(options_.lenders, node) && i < options_.benefactors; ++i) {
      text += line(key_name(fmt::format("benefactor.{}", i)), keys_->make(Role::kBenefactor));
    }
    return text;
  }

  Outcome<void> take_keys(const Meeting& meeting) const {
    std::string name;
    for (const std::string& node : split(options_.nodes, ',')) {
      if (is_listed(node, node_name())) name = keys_name(node);
    }
    const auto text = meeting.take(name);
    if (!text) return problem(text.error());
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      const auto end = line.find(' ');
      const std::string file = line.substr(0, end);
      if (end == std::string::npos || file.empty() || file.find('/') != std::string::npos) {
        return problem("{} in {} is damaged", name, options_.exchange);
      }
      auto put = put_file(record_.directory, file, line.substr(end + 1) + "\n");
      if (!put) return put;
    }
    return {};
  }

  /// Without the secret, this node gets the key that the job's first node has made.
  Outcome<void> make_key(const Job& job) const {
    if (!keys_) return {};
    return put_file(record_.directory, key_name(job.name), keys_->make(role_of(job)));
  }

  Outcome<void> join_job() {
    const Meeting meeting(options_.exchange);
    const std::string first = options_.nodes.substr(0, options_.nodes.find(','));
    const auto until = std::chrono::steady_clock::now() + kJoinPatience;
    std::optional<std::string> manager;
    while (!(manager = meeting.manager())) {
      if (auto good = meeting.check(); !good) return good;
      if (meeting.has_failed(first)) return problem("the manager on {} did not start", first);
      if (std::chrono::steady_clock::now() > until) {
        return problem("the first node of the job has not written the manager's address to {}",
                       options_.exchange);
      }
      sleep_for(20ms);
    }
    record_.manager_address = *manager;
    if (auto taken = take_keys(meeting); !taken) return taken;
    if (options_.encrypt) {
      const auto key = meeting.take("key");
      if (!key) return problem(key.error());
      if (auto put = put_file(record_.directory, "key", *key); !put) return put;
    }
    return save(record_);
  }

  /// Makes the pool's secret, for manager and standby, and the encryption key, for processes that
  /// read and write images.
  Outcome<void> make_secrets() {
    auto secret = make_secret(record_.directory, "secret");
    if (!secret) return problem(secret.error());
    manager_files_ = {{"secret", *secret}};
    auto keys = MemberKeys::of(record_.secret_file());
    if (!keys) return problem(keys.error());
    keys_.emplace(std::move(*keys));
    if (!options_.encrypt) return {};
    auto key = make_secret(record_.directory, "key");
    if (!key) return problem(key.error());
    mount_files_.emplace("key", *key);
    return {};
  }

  Outcome<void> find_programs() {
    for (auto [name, path] : {std::pair{"stdchk-manager", &manager_program_},
                              std::pair{"stdchk-benefactor", &benefactor_program_},
                              std::pair{"stdchk-mount", &mount_program_}}) {
      auto found = find_program(name, options_.invoked_as);
      if (!found) return problem(found.error());
      *path = *found;
    }
    return {};
  }

  std::string listen() const {
    if (!options_.listen.empty()) return options_.listen;
    if (hosts_.empty() && !options_.node) return "127.0.0.1";
    char name[256] = "";
    ::gethostname(name, sizeof(name) - 1);
    return name;
  }

  /// The manager has one address; benefactors may have several.
  std::string manager_listen() const {
    const std::string all = listen();
    return all.substr(0, all.find(','));
  }

  void add(std::vector<std::string>& arguments, const char* flag, const std::string& value) const {
    if (value.empty() || value == "0") return;
    arguments.emplace_back(flag);
    arguments.push_back(value);
  }

  /// The metrics address of the next daemon on that host; ports count up from the first.
  std::string next_metrics(const std::string& host) {
    if (options_.metrics.empty()) return {};
    auto at = metrics::ListenAddress::parse(options_.metrics);
    STDCHK_ASSERT(at.has_value());  // prepare() has checked it
    if (at->port != 0) at->port = static_cast<std::uint16_t>(at->port + metrics_given_[host]++);
    return at->text();
  }

  void add_metrics(Job& job, const std::string& host, const std::string& directory) {
    add(job.arguments, "--metrics", next_metrics(host));
    if (!options_.metrics.empty()) {
      add(job.arguments, "--metrics-file", metrics_file(directory, job.name));
    }
  }

  Job job(const std::string& role, const std::string& name, const std::string& program,
          const std::string& directory) const {
    Job job;
    job.role = role;
    job.name = name;
    job.program = program;
    job.ready_file = directory + "/" + name + ".ready";
    return job;
  }

  /// Starts the job and waits until it is usable. The record lists the job from its start.
  Outcome<void> start_and_wait(const Job& job, Duration longest) {
    auto member = start_local(job, record_.directory);
    if (!member) return problem(member.error());
    record_.members.push_back(*member);
    if (auto saved = save(record_); !saved) return saved;
    if (auto done = wait_ready(job, record_.members.back(), longest); !done) return done;
    return save(record_);
  }

  Outcome<void> start_manager() {
    Job manager = job("manager", "manager", manager_program_, record_.directory);
    if (options_.no_mount) manager.input = record_.spare->fd();
    manager.ready_file = record_.address_file();
    manager.arguments = {
        "--state",        record_.directory + "/manager", "--secret-file", record_.secret_file(),
        "--address-file", record_.address_file(),         "--listen",      manager_listen()};
    add(manager.arguments, "--drain", record_.drain);
    add(manager.arguments, "--drain-rate", std::to_string(options_.drain_rate));
    add(manager.arguments, "--drain-total", std::to_string(options_.drain_total));
    if (!options_.drain_yields) {
      manager.arguments.insert(manager.arguments.end(), {"--drain-yields", "off"});
    }
    add(manager.arguments, "--chunk-size", std::to_string(options_.chunk_bytes));
    add(manager.arguments, "--stripe-width", std::to_string(options_.stripe_width));
    add(manager.arguments, "--naming", options_.naming);
    add(manager.arguments, "--policy", options_.policy);
    add(manager.arguments, "--chunking", options_.chunking);
    add(manager.arguments, "--copies",
        options_.copies == 0 ? "0" : redundancy_text(options_.copies));
    add(manager.arguments, "--topology", options_.topology);
    add(manager.arguments, "--copy-rate", std::to_string(options_.copy_rate));
    manager.arguments.insert(manager.arguments.end(),
                             {"--scrub-rate", std::to_string(options_.scrub_rate), "--gc-period",
                              std::to_string(options_.gc_period)});
    add(manager.arguments, "--log-level", options_.log_level);
    add_metrics(manager, {}, record_.directory);
    record_.manager_command = {manager.program};
    record_.manager_command.insert(record_.manager_command.end(), manager.arguments.begin(),
                                   manager.arguments.end());
    if (auto done = start_and_wait(manager, 30s); !done) return done;
    std::ifstream file(record_.address_file());
    std::getline(file, record_.manager_address);
    if (record_.manager_address.empty()) return problem("the manager wrote no address");
    return save(record_);
  }

  /// Starts the standby: on the first other host, otherwise here. All processes know both
  /// addresses.
  Outcome<void> start_standby() {
    const Host* const host = hosts_.empty() ? nullptr : &hosts_.front();
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
    auto done = host == nullptr ? start_and_wait(standby, 30s)
                                : start_remote(record_.remote_shell, host->name, directory,
                                               manager_files_, {standby}, 30s, record_.members);
    if (auto saved = save(record_); done && !saved) done = saved;
    if (!done) return done;
    auto filesystem = connect(record_);
    if (!filesystem) return problem(filesystem.error());
    const auto pool = (*filesystem)->stat_pool();
    if (!pool) return failed("the manager", pool.error());
    record_.manager_address += "," + pool->standby;
    return save(record_);
  }

  /// The state directory on another host.
  std::string directory_on(const std::string& host) const {
    const std::string key = fs::path(default_state_directory(record_.mount)).filename();
    return fmt::format("/tmp/stdchk-{}-hosts/{}/{}", ::getuid(), key, host);
  }

  std::uint64_t pool_bytes() const {
    if (hosts_.empty()) {
      const std::size_t nodes = options_.node ? split(options_.lenders, ',').size() : 1;
      return options_.memory_bytes * options_.benefactors * nodes;
    }
    return std::accumulate(hosts_.begin(), hosts_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Host& host) {
                             return sum + host.memory_bytes * host.benefactors;
                           });
  }

  /// Returns the log memory that a benefactor reserves at its start. 0: the benefactor's default
  /// suffices for a pool full of large images.
  std::uint64_t log_memory(std::uint64_t memory_bytes) const {
    if (options_.log_memory > 0) return options_.log_memory;
    const std::uint64_t chunk_bytes =
        options_.chunk_bytes > 0 ? options_.chunk_bytes : limits::kChunkBytesDefault;
    const std::uint64_t needed = pool_bytes() / chunk_bytes * kLogBytesPerChunk;
    if (needed <= memory_bytes / limits::kLogShare) return 0;
    return std::min(needed, memory_bytes / kLogShareMost);
  }

  Job benefactor(std::uint32_t number, std::uint64_t memory_bytes, const std::string& address,
                 const std::string& host, const std::string& directory) {
    const std::string name = fmt::format("benefactor.{}", number);
    Job one = job("benefactor", name, benefactor_program_, directory);
    one.arguments = {"--manager",     record_.manager_address,
                     "--secret-file", directory + "/" + key_name(name),
                     "--ready-file",  one.ready_file,
                     "--memory",      std::to_string(memory_bytes),
                     "--listen",      address,
                     "--transport",   options_.transport};
    add(one.arguments, "--backing", options_.backing);
    add(one.arguments, "--disk", options_.disk.empty() ? "" : options_.disk + "/" + name);
    if (const std::uint64_t log_bytes = log_memory(memory_bytes); log_bytes > 0) {
      // A size that the user gives is fixed. Otherwise the log's memory grows as needed.
      const bool asked = options_.log_memory > 0;
      const std::uint64_t most = std::max(memory_bytes / limits::kLogGrowthShare, log_bytes);
      one.arguments.insert(one.arguments.end(),
                           {"--log-memory", std::to_string(log_bytes), "--log-memory-max",
                            std::to_string(asked ? log_bytes : most)});
    }
    if (options_.trusted_network) one.arguments.emplace_back("--trusted-network");
    if (!options_.pressure) {
      one.arguments.insert(one.arguments.end(), {"--pressure", "off"});
    }
    add(one.arguments, "--pressure-reserve", std::to_string(options_.pressure_reserve));
    add(one.arguments, "--log-level", options_.log_level);
    add_metrics(one, host, directory);
    return one;
  }

  Job mount_job(const std::string& host, const std::string& directory, const std::string& mount) {
    Job one = job("mount", "mount", mount_program_, directory);
    one.mount = mount;
    one.arguments = {"--manager",     record_.manager_address,
                     "--secret-file", directory + "/" + key_name(one.name),
                     "--ready-file",  one.ready_file,
                     "--transport",   options_.transport};
    add(one.arguments, "--window", std::to_string(options_.window_bytes));
    add(one.arguments, "--close", options_.close_mode);
    add(one.arguments, "--log-level", options_.log_level);
    add_metrics(one, host, directory);
    if (options_.allow_other) one.arguments.emplace_back("--allow-other");
    if (options_.encrypt) {
      one.arguments.insert(one.arguments.end(), {"--encrypt", "--key-file", directory + "/key"});
    }
    one.arguments.push_back(mount);
    return one;
  }

  Outcome<void> start_local_benefactors() {
    std::vector<Job> jobs;
    for (std::uint32_t i = 0; i < options_.benefactors; ++i) {
      jobs.push_back(benefactor(i, options_.memory_bytes, listen(), {}, record_.directory));
      if (!options_.disk.empty()) {
        std::error_code code;
        fs::create_directories(options_.disk + "/" + jobs.back().name, code);
      }
      if (auto made = make_key(jobs.back()); !made) return made;
      auto member = start_local(jobs.back(), record_.directory);
      if (!member) return problem(member.error());
      record_.members.push_back(*member);
    }
    if (auto saved = save(record_); !saved) return saved;
    const auto first = record_.members.size() - jobs.size();
    const auto longest = ready_longest(options_.memory_bytes * options_.benefactors);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (auto done = wait_ready(jobs[i], record_.members[first + i], longest); !done) return done;
    }
    return save(record_);
  }

  /// Starts all hosts at once, so that a slow host delays no other.
  Outcome<void> start_hosts() {
    // Recorded first, because this process may be killed before a host answers.
    for (const Host& host : hosts_) {
      record_.host_folders.push_back({host.name, directory_on(host.name)});
    }
    if (auto saved = save(record_); !saved) return saved;
    struct Part {
      std::vector<Member> members;
      Outcome<void> done;
    };
    std::vector<Part> parts(hosts_.size());
    std::vector<std::thread> threads;
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const Host& host = hosts_[i];
      const std::string directory = directory_on(host.name);
      std::vector<Job> jobs;
      for (std::uint32_t k = 0; k < host.benefactors; ++k) {
        jobs.push_back(benefactor(number++, host.memory_bytes, host.address, host.name, directory));
      }
      if (options_.mount_on_hosts) jobs.push_back(mount_job(host.name, directory, record_.mount));
      PrivateFiles files = options_.mount_on_hosts ? mount_files_ : PrivateFiles{};
      for (const Job& one : jobs) files.emplace(key_name(one.name), keys_->make(role_of(one)));
      const Duration longest = ready_longest(host.memory_bytes * host.benefactors);
      threads.emplace_back([this, jobs = std::move(jobs), files = std::move(files), directory,
                            longest, &host, &part = parts[i]] {
        part.done = start_remote(record_.remote_shell, host.name, directory, files, jobs, longest,
                                 part.members);
      });
    }
    for (auto& thread : threads) thread.join();
    record_.host_folders.clear();
    Outcome<void> all;
    for (auto& part : parts) {
      record_.members.insert(record_.members.end(), part.members.begin(), part.members.end());
      if (!part.done && all) all = part.done;
    }
    if (auto saved = save(record_); !saved) return saved;
    return all;
  }

  Outcome<void> start_mount() {
    if (options_.no_mount) return {};
    Job mount = mount_job({}, record_.directory, record_.mount);
    if (auto made = make_key(mount); !made) return made;
    mount.input = record_.spare->fd();
    if (auto done = start_and_wait(mount, 30s); !done) return done;
    const std::uint64_t told = record_.members.back().mount_id;
    if (mount_unasked(record_.mount).id == told) return {};
    return problem("{} was mounted, and somebody has unmounted it since", record_.mount);
  }

  UpOptions& options_;
  PoolRecord& record_;
  std::vector<Host> hosts_;
  std::map<std::string, std::uint16_t> metrics_given_;  ///< next port, by host
  std::optional<MemberKeys> keys_;  ///< absent where this part of a job lacks the secret
  PrivateFiles manager_files_;
  PrivateFiles mount_files_;  ///< besides the mount's own key
  std::string manager_program_;
  std::string benefactor_program_;
  std::string mount_program_;
};

/// Notes the drain directory of the pool, and makes it. The directory "" is none.
Outcome<void> make_drain_directory(const UpOptions& options, PoolRecord& record) {
  if (options.drain.empty()) return {};
  if (options.encrypt) {
    return problem(
        "--encrypt and --drain exclude each other: the benefactors, which drain, have no key. Copy "
        "images out through a mount, for example by rsync");
  }
  record.drain = absolute_path(options.drain);
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
  if (options.mount.empty()) return problem("--mount is required; only --job has a default for it");
  // Resolves a link to the directory, so that programs and commands see the same path.
  record.mount = absolute_path_of_link(options.mount);
  record.directory =
      options.state.empty() ? default_state_directory(record.mount) : absolute_path(options.state);
  record.remote_shell = split_words(options.remote_shell);
  record.transport = options.transport;
  record.trusted_network = options.trusted_network;
  record.job_id = options.job_id;
  record.undrained = options.undrained;
  if (!options.report.empty()) record.report = absolute_path(options.report);
  if (!options.safe_file.empty()) {
    if (options.drain.empty()) return problem("--safe-file needs --drain: a safe set is drained");
    options.safe_file = absolute_path(options.safe_file);
  }
  if (record.remote_shell.empty()) return problem("--rsh needs a command");
  if (options.no_mount && options.mount_on_hosts) {
    return problem("--no-mount and --mount-on-hosts exclude each other");
  }
  if (options.standby && (options.job || options.node)) {
    return problem(
        "--standby does not work in a batch job yet, because the job ends when a node is lost");
  }
  if (!options.metrics.empty()) {
    if (auto at = metrics::ListenAddress::parse(options.metrics); !at)
      return problem("{}", at.error());
  }
  if (auto policy = parse_policy(options.policy); !policy) {
    return problem("--policy: {}", policy.error().text);
  }
  if (!options.disk.empty()) options.disk = absolute_path(options.disk);
  if (!options.topology.empty()) options.topology = absolute_path(options.topology);
  if (!options.backing.empty() && options.backing.find('/') != std::string::npos) {
    options.backing = absolute_path(options.backing);
  }
  if (auto made = make_drain_directory(options, record); !made) return problem(made.error());
  record.created = local_time();
  record.starter = this_process();
  record.starter_boot = boot_id();
  record.keeps_key = !options.no_mount;  // managers have no key
  auto spare = SpareRecord::make();
  if (!spare) return problem(spare.error());
  record.spare = std::move(*spare);
  return record;
}

/// Fails with the name of the pool that holds the mount directory.
Outcome<void> held_by(const std::string& mount, const std::string& otherwise) {
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
    return problem("--mount: {}", made.error());
  }
  const auto lock = MountLock::take(mount, 1s);
  if (lock) return {};
  if (lock.error().error.code == Code::kBusy) return held_by(mount, lock.error().text);
  return problem("--mount: {}", lock.error().text);
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Outcome<void> make_private(const std::string& directory) {
  if (auto made = OwnFolder::make(directory, kStateRules); !made)
    return problem("{}", made.error());
  return {};
}

/// Returns the time limit for the start of benefactors. They pre-fault their memory, at 2.6 GB/s on
/// the slowest host seen. The limit assumes a quarter of this rate.
Duration ready_longest(std::uint64_t memory_bytes) {
  return 30s + std::chrono::milliseconds(memory_bytes / (650 * 1000));
}

Outcome<PoolRecord> start_pool(UpOptions options) {
  if (options.benefactors == 0) options.benefactors = options.node ? 1 : 2;
  auto record = prepare(options);
  if (!record) return record;
  if (auto made = make_private(state_base()); !made) return problem(made.error());
  const auto lock = UpLock::take(*record);
  if (!lock) return problem(lock.error());
  auto cleaned =
      clean_leftovers({default_state_directory(record->mount), record->directory}, record->mount);
  if (!cleaned) return problem(cleaned.error());
  for (const auto& line : *cleaned) fmt::print(stderr, "stdchk: {}\n", line);
  if (!options.no_mount) {
    if (auto checked = check_mounting(); !checked) return problem(checked.error());
  }
  const bool lends = options.hosts_file.empty() && options.disk.empty() &&
                     (!options.node || is_listed(options.lenders, node_name()));
  const std::uint64_t local_bytes = lends ? options.memory_bytes * options.benefactors : 0;
  if (auto checked = check_memory(local_bytes); !checked) return problem(checked.error());
  if (!options.no_mount) {  // last, because it may make the folder
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
  if (!options.config_file.empty()) {
    ::setenv("STDCHK_CONFIG", absolute_path(options.config_file).c_str(), 1);
  }
  announce(record->directory, record->mount);
  if (auto saved = save(*record); !saved) return problem(saved.error());
  auto done = Starter(options, *record).run();
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
      options.job ? std::int64_t{options.benefactor_nodes} * std::max(options.benefactors, 1U)
                  : std::ranges::count(pool.members, "benefactor", &Member::role);
  std::string text = fmt::format("The pool is up at {}{}: {} benefactor{}", pool.mount,
                                 options.no_mount ? " (a name only, without a mount)" : "",
                                 benefactors, benefactors == 1 ? "" : "s");
  if (options.hosts_file.empty()) {
    text += fmt::format(" of {}", format_bytes(options.memory_bytes));
  }
  text += pool.drain.empty() ? ", without a drain directory.\n"
                             : fmt::format(", drained to {}.\n", pool.drain);
  if (options.no_mount) {
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
