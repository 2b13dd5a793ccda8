#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benefactor/arena.h"
#include "benefactor/service.h"
#include "benefactor/stop.h"
#include "core/clock.h"
#include "core/executor.h"
#include "core/limits.h"
#include "core/reactor.h"
#include "manager/memory_journal.h"
#include "manager/rebuilder.h"
#include "manager/service.h"
#include "manager/standby.h"
#include "tests/support/delayed_executor.h"
#include "tests/support/fault_drainer.h"
#include "tests/support/node_clock.h"
#include "transport/fault/fault.h"
#include "transport/mem/mem.h"

namespace stdchk::sim {

/// A Node is one process of the simulated pool: clocks, a reactor and an endpoint with faults.
///
/// Destroying it is the process's death. Who lives on it must be destroyed before.
struct Node {
  /// What went wrong on purpose is added to `ended` at the end.
  Node(std::string node_name, transport::mem::Fabric& fabric, const NodeClock& own_clock,
       std::uint64_t seed, transport::fault::Counts& ended);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const std::string name;
  NodeClock clock;
  Reactor reactor;
  transport::fault::FaultEndpoint endpoint;
  bool stopped = false;  ///< as by SIGSTOP: runs nothing until it is cleared

 private:
  transport::fault::Counts& ended_;
};

/// What was made to go wrong below the processes.
struct Faults {
  transport::fault::Counts transport;
  StorageCounts storage;
  std::uint64_t slow_jobs = 0;  ///< drains and moves that took up to the longest time there is
  std::uint64_t commands = 0;   ///< of the journal, lost before they were durable
  std::uint64_t take_overs = 0;
  std::uint64_t superseded = 0;  ///< managers that heard of a later one
};

/// What a process is, to those who say what goes wrong there.
enum class Role : std::uint8_t { kManager, kBenefactor, kClient };

/// What a manager's process leaves behind.
struct ManagerDisk {
  manager::MemoryJournal journal;
  std::string standby;  ///< that the manager remembers
};

/// A ManagerNode is a process with a manager, or with what becomes one: a standby, or the
/// rebuilding of a lost manager.
///
/// Owns: its node; not the disk. Threads: one.
class ManagerNode final : private transport::AcceptHandler {
 public:
  ManagerNode(std::unique_ptr<Node> node, ManagerDisk& disk, manager::Config config);
  ~ManagerNode() override;  ///< as by SIGKILL

  /// One of these, once. The first begins with what is on the disk; for the others it is empty.
  void serve();
  void rebuild();
  void stand_by(std::string manager, Duration silence);

  Node& node() { return *node_; }
  /// None: it does not serve yet.
  manager::Service* service() { return service_.get(); }
  /// It stands by and hears the manager.
  bool follows() const;
  bool took_over() const { return standby_ != nullptr && service_ != nullptr; }
  /// No benefactor had a log to rebuild it from.
  bool failed() const { return failed_; }
  /// Of the manager that has the pool now: this one runs nothing any more. None: it has not heard.
  Epoch superseded() const { return superseded_; }
  /// Its journal has lost its end: it runs nothing any more.
  bool damaged() const { return damaged_; }

 private:
  void on_accept(std::unique_ptr<transport::Link> link) override;
  void listen();
  void start_service();
  void rebuilt(bool found);

  const std::unique_ptr<Node> node_;
  ManagerDisk& disk_;
  manager::Config config_;
  bool failed_ = false;
  Epoch superseded_;
  bool damaged_ = false;
  std::unique_ptr<manager::Rebuilder> rebuilder_;
  std::unique_ptr<manager::Standby> standby_;
  std::unique_ptr<manager::Service> service_;
};

/// A Cluster is a manager, benefactors and the nodes of clients in one thread: each node has its
/// own reactor and its own view of one manual clock; all share one network in memory.
///
/// There are two places for managers. A standby is in the one that the manager is not in; a manager
/// that is told of a later one ends.
///
/// Owns: all nodes. Deterministic: nodes run in the order in which they were made.
class Cluster {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t arena_bytes = 4 * limits::kMiB;
    msg::PoolConfig pool;
    std::uint64_t hosts = 1;  ///< that benefactors are spread over
    std::uint64_t scrub_rate_bytes_per_s = 0;
    Duration gc_period{};
    Duration sync_delay{};                         ///< until what is journalled is durable
    std::uint64_t log_bytes = 512 * limits::kKiB;  ///< of each benefactor
    std::size_t snapshot_every = 10000;            ///< commands in the journal
    std::uint32_t drift_ppm_max = 0;               ///< clocks are up to that much fast or slow
    Duration clock_offset_max{};                   ///< and show another time, up to that much
    std::string managers = manager_address();      ///< where benefactors look for it
  };
  struct Benefactor {
    std::unique_ptr<Node> node;
    std::unique_ptr<benefactor::Arena> arena;
    std::unique_ptr<DelayedExecutor> jobs;  ///< runs its drain jobs and moves
    std::unique_ptr<benefactor::Service> service;
  };

  explicit Cluster(Options options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Time now() const { return clock_.now(); }
  static std::string manager_address() { return "mem:manager"; }
  /// With that of the standby, whether there is one or not.
  static std::string manager_addresses() { return "mem:manager,mem:standby"; }

  Node& add_node(const std::string& name);
  void remove_node(Node& node);

  /// Called before a process is gone.
  void set_on_end(std::function<void(const Node&)> on_end) { on_end_ = std::move(on_end); }

  void start_manager();
  /// As by SIGKILL. What its journal was not told to keep durable is gone; without `keep_disk` all
  /// of it.
  void kill_manager(bool keep_disk = true);
  /// Killed, and started again where it was.
  void restart_manager();
  /// The same, and the end of what was durable is gone.
  void restart_manager_without(std::size_t commands);
  bool manager_is_damaged() { return manager_place()->process->damaged(); }
  /// As by the loss of its node: the journal is gone, too, and another manager is rebuilt from the
  /// benefactors. False: it could not be.
  bool rebuild_manager();
  /// The one with the latest epoch; none serves: null.
  manager::Service* manager();
  Node& manager_node();
  manager::MemoryJournal& journal();
  /// Commands of the manager that are not durable yet.
  std::size_t unsynced() { return journal().unsynced(); }

  /// It follows the manager from where that is not. What was on the disk there is gone.
  void start_standby(Duration silence);
  ManagerNode* standby();
  /// Where the manager is not there is a process: a standby, or a manager that has not heard yet
  /// that another one has taken over.
  bool has_second_manager() { return other_place().process != nullptr; }
  void kill_second_manager() { end_process(other_place()); }
  /// The manager has taken over and goes on to tell the one before.
  bool manager_tells() { return manager_place()->process->took_over(); }
  /// On the disk of a manager that was killed or superseded.
  bool can_start_old_manager();
  void start_old_manager();
  /// The client has its number from an earlier manager than the one that has the pool now, and may
  /// still speak with that.
  bool is_behind(ClientId client);
  /// Where everybody looks for the manager.
  const std::string& managers() const { return options_.managers; }
  bool may_stand_by() const { return options_.managers != manager_address(); }

  void add_benefactor();
  void kill_benefactor(std::size_t index);
  /// Drain jobs and moves take up to `usual`, one in `rare` up to `longest`, and the storage fails
  /// that often.
  void set_job_faults(Duration usual, Duration longest, std::uint64_t rare,
                      std::uint32_t storage_fail_ppm);
  /// The drain directory has no room any more, or has some again.
  void set_storage_full(bool full) { storage_.full = full; }
  /// What goes wrong on the endpoints of these processes, those that come to be later, too.
  void set_plan(Role role, const transport::fault::Plan& plan);
  std::vector<Benefactor>& benefactors() { return benefactors_; }

  /// Runs every node until none has anything to do, then moves the clock to the next event, but not
  /// beyond `until`.
  void turn(Time until);
  void run_for(Duration time);
  /// False: `done` was not so within `time`.
  bool run_until(const std::function<bool()>& done, Duration time);
  /// Turns so far without the clock moving are bounded; this one was not: something spins.
  bool livelock() const { return livelock_; }
  /// So far.
  Faults faults();

 private:
  struct ManagerPlace {
    std::string name;
    ManagerDisk disk;
    std::unique_ptr<ManagerNode> process;
  };

  /// Where the manager is; none serves: null.
  ManagerPlace* manager_place();
  ManagerPlace& other_place();
  ManagerNode& start_process(ManagerPlace& place);
  void end_process(ManagerPlace& place);
  void wipe(ManagerDisk& disk);
  std::unique_ptr<Node> make_node(const std::string& name, Role role);
  NodeClock make_clock();
  std::vector<Node*> nodes();

  Options options_;
  ManualClock clock_;
  Prng prng_;
  transport::mem::Fabric fabric_;
  benefactor::Stop stop_;
  Duration job_usual_{};
  Duration job_longest_{};
  std::uint64_t job_rare_ = 0;
  StorageFaults storage_;
  std::map<Role, transport::fault::Plan> plans_;
  Faults ended_;  ///< of nodes that are no more
  std::function<void(const Node&)> on_end_;
  std::array<ManagerPlace, 2> places_;
  std::vector<Benefactor> benefactors_;
  std::vector<std::unique_ptr<Node>> others_;
  std::uint64_t lives_ = 0;
  bool livelock_ = false;
};

}  // namespace stdchk::sim
