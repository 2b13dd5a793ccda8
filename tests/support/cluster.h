#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "benefactor/memory/arena.h"
#include "benefactor/memory/stop.h"
#include "benefactor/service/service.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/limits.h"
#include "core/policy/policy.h"
#include "core/runtime/reactor.h"
#include "manager/journal/memory_journal.h"
#include "manager/recovery/rebuilder.h"
#include "manager/recovery/standby.h"
#include "manager/service/service.h"
#include "tests/support/delayed_executor.h"
#include "tests/support/fault_drainer.h"
#include "tests/support/node_clock.h"
#include "tests/support/write_watch.h"
#include "transport/fault/fault.h"
#include "transport/mem/mem.h"

namespace stdchk::sim {

/// A Node is one process of the simulated pool: clocks, a reactor and an endpoint with faults.
///
/// Its destruction is the process's death. Destroy all objects that use the node before the node.
struct Node {
  /// At its end the node adds its injected faults to `ended`.
  Node(std::string node_name, transport::mem::Fabric& fabric, const NodeClock& own_clock,
       std::uint64_t seed, transport::fault::Counts& ended);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const std::string name;
  NodeClock clock;
  Reactor reactor;
  transport::fault::FaultEndpoint endpoint;
  bool stopped = false;  ///< as by SIGSTOP: runs nothing until cleared

 private:
  transport::fault::Counts& ended_;
};

/// The faults that were injected below the processes.
struct Faults {
  transport::fault::Counts transport;
  StorageCounts storage;
  /// drain jobs and moves that drew a delay of up to the longest time
  std::uint64_t slow_jobs = 0;
  std::uint64_t commands = 0;  ///< journal commands lost before they were durable
  std::uint64_t take_overs = 0;
  std::uint64_t superseded = 0;  ///< managers that learned of their successor
};

/// The role of a process, for fault plans.
enum class Role : std::uint8_t { kManager, kBenefactor, kClient };

/// The data that survive a manager's process.
struct ManagerDisk {
  manager::MemoryJournal journal;
  std::string standby;  ///< the standby that the manager remembers
};

/// A ManagerNode is a process with a manager, or with a future manager: a standby, or the
/// rebuilding of a lost manager.
///
/// Owns: its node; not the disk. Threads: one.
class ManagerNode final : private transport::AcceptHandler {
 public:
  ManagerNode(std::unique_ptr<Node> node, ManagerDisk& disk, manager::Config config);
  ~ManagerNode() override;  ///< dies as by SIGKILL

  /// Call one of these three, once. serve() starts from the disk; the others require an empty disk.
  void serve();
  void rebuild();
  void stand_by(std::string manager, Duration silence);

  Node& node() { return *node_; }
  /// Null: it does not serve yet.
  manager::Service* service() { return service_.get(); }
  /// Returns true for a standby that hears the manager.
  bool follows() const;
  bool took_over() const { return standby_ != nullptr && service_ != nullptr; }
  /// Whether the rebuilding failed because no benefactor had a log.
  bool failed() const { return failed_; }
  /// Returns the epoch of a known successor. A manager with a successor executes nothing.
  Epoch superseded() const { return superseded_; }
  /// Returns true when the journal has lost its end. The manager then executes nothing.
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

/// A Cluster is a manager, benefactors and the nodes of clients in one thread. Each node has its
/// own reactor and its own view of one manual clock; all share one network in memory.
///
/// A cluster has two places for managers. A standby runs in the place without the manager. A
/// manager that learns of its successor ends.
///
/// Owns: all nodes. Deterministic: nodes run in the order of their creation.
class Cluster {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t arena_bytes = 4 * limits::kMiB;
    msg::PoolConfig pool;
    Policy policy;            ///< of the whole pool
    std::uint64_t hosts = 1;  ///< hosts over which benefactors are spread
    std::uint64_t scrub_rate_bytes_per_s = 0;
    Duration gc_period{};
    Duration sync_delay{};                         ///< time until a journalled command is durable
    std::uint64_t log_bytes = 512 * limits::kKiB;  ///< of each benefactor
    std::size_t snapshot_every = 10000;            ///< commands in the journal
    std::uint32_t drift_ppm_max = 0;               ///< largest drift of a clock
    Duration clock_offset_max{};  ///< largest difference between the clocks' beginnings
    /// addresses at which benefactors look for the manager
    std::string managers = manager_address();
    /// Makes the drainer of a benefactor, and shows the files of an earlier pool. Empty: files with
    /// FaultDrainer, and import_drained().
    std::function<std::unique_ptr<benefactor::Drainer>(ByteSpan arena, const Clock& clock,
                                                       std::uint64_t life)>
        make_drainer;
    std::function<Status(const std::function<void(manager::Command)>& emit)> import_drained;
  };
  /// A checker's verdict on a place of an arena, valid while the stamp stays.
  struct CheckedExtent {
    std::uint64_t stamp = 0;  ///< of the WriteWatch
    ChunkName name;
    std::uint32_t length = 0;
    std::uint32_t crc = 0;
    std::string fault;  ///< empty: the chunk is there, whole
  };
  struct Benefactor {
    std::unique_ptr<Node> node;
    std::unique_ptr<benefactor::Arena> arena;
    std::unique_ptr<WriteWatch> watch;                                          ///< of the arena
    std::unique_ptr<std::unordered_map<std::uint64_t, CheckedExtent>> checked;  ///< by offset
    std::unique_ptr<DelayedExecutor> jobs;  ///< runs its drain jobs and moves
    std::unique_ptr<benefactor::Service> service;
  };

  explicit Cluster(Options options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  Time now() const { return clock_.now(); }
  static std::string manager_address() { return "mem:manager"; }
  /// The manager's and the standby's address, whether a standby runs or not.
  static std::string manager_addresses() { return "mem:manager,mem:standby"; }

  Node& add_node(const std::string& name);
  void remove_node(Node& node);

  /// Called before a process ends.
  void set_on_end(std::function<void(const Node&)> on_end) { on_end_ = std::move(on_end); }

  void start_manager();
  /// Kills the manager as by SIGKILL. Commands that were not durable are lost; without `keep_disk`,
  /// all are.
  void kill_manager(bool keep_disk = true);
  /// Kills the manager, and starts it again in its place.
  void restart_manager();
  /// As restart_manager(), and the last `commands` durable commands are lost.
  void restart_manager_without(std::size_t commands);
  bool manager_is_damaged() { return manager_place()->process->damaged(); }
  /// Loses the manager's node with its journal, and rebuilds a manager from the benefactors. False:
  /// the rebuilding failed.
  bool rebuild_manager();
  /// The manager with the latest epoch; null: none serves.
  manager::Service* manager();
  Node& manager_node();
  manager::MemoryJournal& journal();
  /// The number of the manager's commands that are not durable yet.
  std::size_t unsynced() { return journal().unsynced(); }

  /// Starts a standby in the other place, with an empty disk.
  void start_standby(Duration silence);
  ManagerNode* standby();
  /// Returns true when the other place has a process: a standby, or a manager that does not know
  /// its successor.
  bool has_second_manager() { return other_place().process != nullptr; }
  void kill_second_manager() { end_process(other_place()); }
  /// Returns true for a manager that has taken over: it announces itself to its predecessor.
  bool manager_announces() { return manager_place()->process->took_over(); }
  /// Starts a killed or superseded manager on its own disk.
  bool can_start_old_manager();
  void start_old_manager();
  /// Whether the client's number is from an earlier manager than the present one; it may still
  /// speak with that manager.
  bool is_behind(ClientId client);
  /// The addresses at which all processes look for the manager.
  const std::string& managers() const { return options_.managers; }
  /// Returns the token of a host with benefactors, for the process with that name.
  std::string host_for(const std::string& process) const {
    return host_token(std::hash<std::string>{}(process));
  }
  bool may_stand_by() const { return options_.managers != manager_address(); }

  void add_benefactor();
  void kill_benefactor(std::size_t index);
  /// Drain jobs and moves take up to `usual`, and one in `rare` up to `longest`. `storage_fail_ppm`
  /// jobs in a million fail.
  void set_job_faults(Duration usual, Duration longest, std::uint64_t rare,
                      std::uint32_t storage_fail_ppm);
  /// Fills the drain directory, or makes room in it.
  void set_storage_full(bool full) { storage_.full = full; }
  /// Sets the network faults of these processes, also of later ones.
  void set_plan(Role role, const transport::fault::Plan& plan);
  std::vector<Benefactor>& benefactors() { return benefactors_; }

  /// Runs every node until none has work left, then moves the clock to the next event, at most to
  /// `until`.
  void turn(Time until);
  void run_for(Duration time);
  /// False: `done` did not become true within `time`.
  bool run_until(const std::function<bool()>& done, Duration time);
  /// Whether the number of turns without progress of the clock exceeded its limit: some code spins.
  bool livelock() const { return livelock_; }
  /// All faults so far.
  Faults faults();

 private:
  struct ManagerPlace {
    std::string name;
    ManagerDisk disk;
    std::unique_ptr<ManagerNode> process;
  };

  std::string host_token(std::uint64_t number) const;
  /// The manager's place; null: none serves.
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
  Faults ended_;  ///< faults of ended nodes
  std::function<void(const Node&)> on_end_;
  std::array<ManagerPlace, 2> places_;
  std::vector<Benefactor> benefactors_;
  std::vector<std::unique_ptr<Node>> others_;
  std::uint64_t lives_ = 0;
  bool livelock_ = false;
};

}  // namespace stdchk::sim
