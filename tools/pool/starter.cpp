#include "tools/pool/starter.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/units.h"
#include "core/crypto/secret.h"
#include "core/files/own_folder.h"
#include "core/files/pool_files.h"
#include "tools/base/connection.h"
#include "tools/base/hosts.h"
#include "tools/base/mounts.h"
#include "tools/base/running.h"
#include "tools/drained/undrained.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/daemon_jobs.h"
#include "tools/pool/meeting.h"
#include "tools/pool/member_key.h"
#include "tools/pool/members.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using transport::secure::Role;

constexpr auto kJoinPatience = 60s;  ///< wait for the first node of a job

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

Role role_of(const Job& job) {
  return job.role == "benefactor" ? Role::kBenefactor : Role::kClient;
}

/// The name of the file with the keys of one node's members, left by the job's first node. It has
/// pairs of lines: a file's name and its text.
std::string keys_name(const std::string& node) { return node + ".keys"; }

/// A Starter starts a pool, or one node's part of a job's pool, step by step.
///
/// Threads: one, which waits for threads that it starts.
class Starter {
 public:
  Starter(const UpOptions& options, PoolRecord& record) : options_(options), record_(record) {}

  Outcome<void> run() {
    if (!options_.hosts.file.empty()) {
      auto hosts =
          read_hosts(options_.hosts.file, options_.lent.memory_bytes, options_.lent.benefactors);
      if (!hosts) return problem(hosts.error());
      hosts_ = std::move(*hosts);
    }
    if (auto done = daemons_.find_programs(); !done) return done;
    if (options_.batch.one_node) return run_node();
    if (auto done = make_secrets(); !done) return done;
    if (auto done = start_manager(); !done) return done;
    if (options_.hosts.standby) {
      if (auto done = start_standby(); !done) return done;
    }
    if (!hosts_.empty()) {
      if (auto done = start_hosts(); !done) return done;
    }
    auto done = start_here(hosts_.empty());
    return !done || options_.records.safe_file.empty() ? done : start_recorder();
  }

 private:
  /// Runs one node's part. The first node of the job has the manager, and publishes its address and
  /// the nodes' keys.
  Outcome<void> run_node() {
    const std::string name = node_name();
    const std::string first = options_.batch.nodes.substr(0, options_.batch.nodes.find(','));
    auto done = is_listed(first, name) ? begin_job() : join_job();
    if (!done) return done;
    done = start_here(is_listed(options_.batch.lenders, name));
    const bool records = !record_.undrained.empty() || !options_.records.safe_file.empty();
    return !done || !records || !is_listed(first, name) ? done : start_recorder();
  }

  /// Starts the recorder. It keeps files for the time after the pool: the list of undrained files,
  /// and the newest safe set.
  Outcome<void> start_recorder() {
    Job recorder;
    recorder.role = recorder.name = "recorder";
    auto program = find_program("stdchk", options_.invocation.program);
    if (!program) return problem(program.error());
    recorder.program = absolute_path(*program);
    recorder.arguments = {"report", "--pool", record_.directory};
    add_flag(recorder.arguments, "--undrained", record_.undrained);
    add_flag(recorder.arguments, "--safe-file", options_.records.safe_file);
    auto member = start_local(recorder, record_.directory);
    if (!member) return problem(member.error());
    record_.members.push_back(*member);
    return save(record_);
  }

  Outcome<void> begin_job() {
    report_losses(record_.undrained, record_.drain, record_.report);
    if (auto made = OwnFolder::make(options_.batch.exchange, kExchangeRules); !made) {
      return problem("{}", made.error().text);
    }
    if (auto done = make_secrets(); !done) return done;
    if (auto done = start_manager(); !done) return done;
    // Each file is readable by this user only, and is removed when all nodes have read it.
    const Meeting meeting(options_.batch.exchange);
    for (const auto& [name, text] : mount_files_) {
      if (auto handed = meeting.hand_over(name, text + "\n"); !handed) return handed;
    }
    for (const std::string& node : split(options_.batch.nodes, ',')) {
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
    for (std::uint32_t i = 0;
         is_listed(options_.batch.lenders, node) && i < options_.lent.benefactors; ++i) {
      text += line(key_name(fmt::format("benefactor.{}", i)), keys_->make(Role::kBenefactor));
    }
    return text;
  }

  Outcome<void> take_keys(const Meeting& meeting) const {
    std::string name;
    for (const std::string& node : split(options_.batch.nodes, ',')) {
      if (is_listed(node, node_name())) name = keys_name(node);
    }
    const auto text = meeting.take(name);
    if (!text) return problem(text.error());
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      const auto end = line.find(' ');
      const std::string file = line.substr(0, end);
      if (end == std::string::npos || file.empty() || file.find('/') != std::string::npos) {
        return problem("{} in {} is damaged", name, options_.batch.exchange);
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
    const Meeting meeting(options_.batch.exchange);
    const std::string first = options_.batch.nodes.substr(0, options_.batch.nodes.find(','));
    const auto until = std::chrono::steady_clock::now() + kJoinPatience;
    std::optional<std::string> manager;
    while (!(manager = meeting.manager())) {
      if (auto good = meeting.check(); !good) return good;
      if (meeting.has_failed(first)) return problem("the manager on {} did not start", first);
      if (std::chrono::steady_clock::now() > until) {
        return problem("the first node of the job has not written the manager's address to {}",
                       options_.batch.exchange);
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
    Job manager = daemons_.manager();
    if (options_.mount.name_only) manager.input = record_.spare->fd();
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
    const Job standby = daemons_.standby(host);
    auto done = host == nullptr ? start_and_wait(standby, 30s)
                                : start_remote(record_.remote_shell, host->name,
                                               daemons_.directory_on(host->name), manager_files_,
                                               {standby}, 30s, record_.members);
    if (auto saved = save(record_); done && !saved) done = saved;
    if (!done) return done;
    auto filesystem = connect(record_);
    if (!filesystem) return problem(filesystem.error());
    const auto pool = (*filesystem)->stat_pool();
    if (!pool) return failed("the manager", pool.error());
    record_.manager_address += "," + pool->standby;
    return save(record_);
  }

  /// Starts the benefactors of this host, if it lends memory, and the mount. The mount starts while
  /// the benefactors take their memory.
  Outcome<void> start_here(bool lends) {
    const std::size_t first = record_.members.size();
    std::vector<Job> jobs;
    for (std::uint32_t i = 0; lends && i < options_.lent.benefactors; ++i) {
      jobs.push_back(daemons_.benefactor(i));
      if (!options_.lent.disk.empty()) {
        std::error_code code;
        fs::create_directories(options_.lent.disk + "/" + jobs.back().name, code);
      }
      if (auto begun = begin(jobs.back()); !begun) return begun;
    }
    std::optional<Job> mount;
    if (!options_.mount.name_only) {
      mount = mount_job();
      if (auto begun = begin(*mount); !begun) return begun;
    }
    if (auto saved = save(record_); !saved) return saved;
    const auto longest = ready_longest(options_.lent.memory_bytes * options_.lent.benefactors);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (auto done = wait_ready(jobs[i], record_.members[first + i], longest); !done) return done;
    }
    return mount ? wait_mounted(*mount) : save(record_);
  }

  /// Starts the job, without waiting. The caller saves the record.
  Outcome<void> begin(const Job& job) {
    if (auto made = make_key(job); !made) return made;
    auto member = start_local(job, record_.directory);
    if (!member) return problem(member.error());
    record_.members.push_back(*member);
    return {};
  }

  /// Starts all hosts at once, so that a slow host delays no other.
  Outcome<void> start_hosts() {
    // Recorded first, because this process may be killed before a host answers.
    for (const Host& host : hosts_) {
      record_.host_folders.push_back({host.name, daemons_.directory_on(host.name)});
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
      const std::string directory = daemons_.directory_on(host.name);
      std::vector<Job> jobs;
      for (std::uint32_t k = 0; k < host.benefactors; ++k) {
        jobs.push_back(
            daemons_.benefactor(number++, host.memory_bytes, host.address, host.name, directory));
      }
      if (options_.mount.on_hosts) jobs.push_back(daemons_.mount(host.name, directory));
      PrivateFiles files = options_.mount.on_hosts ? mount_files_ : PrivateFiles{};
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

  Job mount_job() {
    Job mount = daemons_.mount({}, record_.directory);
    mount.input = record_.spare->fd();
    return mount;
  }

  /// Waits until the last member, the mount, is usable.
  Outcome<void> wait_mounted(const Job& mount) {
    if (auto done = wait_ready(mount, record_.members.back(), 30s); !done) return done;
    if (auto saved = save(record_); !saved) return saved;
    const std::uint64_t told = record_.members.back().mount_id;
    if (mount_unasked(record_.mount).id == told) return {};
    return problem("{} was mounted, and somebody has unmounted it since", record_.mount);
  }

  const UpOptions& options_;
  PoolRecord& record_;
  std::vector<Host> hosts_;
  DaemonJobs daemons_{options_, record_, hosts_};
  std::optional<MemberKeys> keys_;  ///< absent where this part of a job lacks the secret
  PrivateFiles manager_files_;
  PrivateFiles mount_files_;  ///< besides the mount's own key
};

}  // namespace

Outcome<void> start_processes(const UpOptions& options, PoolRecord& record) {
  return Starter(options, record).run();
}

}  // namespace stdchk::tools
