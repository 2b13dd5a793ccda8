#pragma once

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
};

/// What a process is, to those who say what goes wrong there.
enum class Role : std::uint8_t { kManager, kBenefactor, kClient };

/// A StandbyNode is a process with a manager's standby, and then with the manager that it becomes.
struct StandbyNode final : private transport::AcceptHandler {
  StandbyNode(transport::mem::Fabric& fabric, const NodeClock& clock, const msg::Secret& secret,
              std::string manager, Duration silence, transport::fault::Counts& ended);
  ~StandbyNode() override;
  /// None: it stands by.
  manager::Service* service() { return service_.get(); }

  Node node;
  /// Its own way to the manager, to be cut off from that alone.
  transport::fault::FaultEndpoint to_manager;
  bool follows = false;

 private:
  void on_accept(std::unique_ptr<transport::Link> link) override;
  void take_over();

  const msg::Secret secret_;
  manager::MemoryJournal journal_;
  std::unique_ptr<manager::Rebuilder> rebuilder_;
  std::unique_ptr<manager::Standby> standby_;
  std::unique_ptr<manager::Service> service_;
};

/// A Cluster is a manager, benefactors and the nodes of clients in one thread: each node has its
/// own reactor and its own view of one manual clock; all share one network in memory.
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
  const msg::Secret& secret() const { return secret_; }
  static std::string manager_address() { return "mem:manager"; }
  /// With that of the standby, whether there is one or not.
  static std::string manager_addresses() { return "mem:manager,mem:standby"; }

  Node& add_node(const std::string& name);
  void remove_node(Node& node);

  void start_manager();
  /// As by SIGKILL. What the journal was not told to keep durable is gone.
  void kill_manager();
  /// As by the loss of its node: the journal is gone, too, and another manager is rebuilt from the
  /// benefactors. False: it could not be.
  bool rebuild_manager();
  manager::Service* manager() { return manager_.get(); }
  Node& manager_node() { return *manager_node_; }
  /// Of the manager that took over from the one that was started here; none: it has not heard.
  Epoch superseded() const { return superseded_; }
  void start_standby(Duration silence);
  StandbyNode* standby() { return standby_.get(); }
  manager::MemoryJournal& journal() { return journal_; }

  void add_benefactor();
  void kill_benefactor(std::size_t index);
  /// Drain jobs and moves take up to `usual`, one in `rare` up to `longest`, and the storage fails
  /// that often.
  void set_job_faults(Duration usual, Duration longest, std::uint64_t rare,
                      std::uint32_t storage_fail_ppm);
  /// The drain directory has no room any more, or has some again.
  void set_storage_full(bool full) { storage_.full = full; }
  /// Commands of the manager that are not durable yet.
  std::size_t unsynced() const { return journal_.unsynced(); }
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
  std::unique_ptr<Node> make_node(const std::string& name, Role role);
  NodeClock make_clock();
  std::vector<Node*> nodes();

  Options options_;
  ManualClock clock_;
  Prng prng_;
  msg::Secret secret_{1, 2};
  transport::mem::Fabric fabric_;
  benefactor::Stop stop_;
  Duration job_usual_{};
  Duration job_longest_{};
  std::uint64_t job_rare_ = 0;
  StorageFaults storage_;
  std::map<Role, transport::fault::Plan> plans_;
  Faults ended_;  ///< of nodes that are no more
  manager::MemoryJournal journal_;
  std::unique_ptr<Node> manager_node_;
  std::unique_ptr<manager::Service> manager_;
  std::string known_standby_;  ///< that the manager remembers
  Epoch superseded_;
  std::unique_ptr<StandbyNode> standby_;
  std::vector<Benefactor> benefactors_;
  std::vector<std::unique_ptr<Node>> others_;
  std::uint64_t lives_ = 0;
  bool livelock_ = false;
};

}  // namespace stdchk::sim
