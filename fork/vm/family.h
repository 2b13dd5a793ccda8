#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/runtime/reactor.h"
#include "fork/process/clone_table.h"
#include "fork/process/watches.h"
#include "fork/ticket/allocator.h"
#include "fork/vm/agent_line.h"
#include "fork/vm/machine.h"
#include "fork/vm/machine_network.h"
#include "fork/vm/remote_machines.h"
#include "fork/vm/saved_machine.h"

namespace stdchk::fork::vm {

/// ForkFigures say how long a fork took.
struct ForkFigures {
  double start_s = 0;   ///< the clones' QEMU started, while the parent runs
  double paused_s = 0;  ///< the parent was away
  double loaded_s = 0;  ///< from the pause until all clones run
  std::uint64_t descriptor_bytes = 0;
};

/// A Family is a virtual machine and its clones. It serves their agents: the programs in the guests
/// that call sf_request_ticket, sf_clone, sf_exit, sf_join and sf_kill over the port
/// "stdchk.fork.0" (guest_protocol.md).
///
/// Owns: all machines; the destructor ends them. Threads: the reactor's; forks hold it up until all
/// clones run. Errors: a sentence for people, and an errno for guests.
class Family {
 public:
  struct Parts {
    std::string name;
    std::string folder;  ///< an own one, for sockets, logs and overlays
    Allocator* hosts = nullptr;
    std::uint64_t clone_bytes = 0;
    RemoteParts remote;
    /// The first machine has ended.
    std::function<void(End, int status, const std::string& value)> on_end;
    /// The first machine is the clone of another host's ticket, which has `count` clones.
    std::uint64_t ticket = 0;
    std::uint32_t count = 0;
    std::optional<Subnet> subnet;  ///< range for the family's network; none: no network
    /// Environment of QEMU for machines whose guests may give up memory: loads the library
    /// libstdchk-vm-memory.
    std::vector<std::string> memory_library;
  };
  Family(Reactor& reactor, Watches& watches, QemuCommand command, Parts parts);
  ~Family();
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  Outcome<void> start();
  /// Starts the first machine from an image instead. `environment`: lets QEMU fetch the memory from
  /// the page server; empty: the memory is read whole before the machine runs.
  Outcome<void> start_from(const SavedMachine& image, std::uint32_t id,
                           std::vector<std::string> environment);
  /// Writes an image of a machine into a folder that exists. The machine is away as for a fork.
  Outcome<void> save(const std::string& name, const std::string& folder, ForkFigures& figures);
  /// Clones a machine, as its guest's sf_clone does. Returns the names of the clones.
  Outcome<std::vector<std::string>> fork(const std::string& name, std::uint32_t count,
                                         ForkFigures& figures);
  Outcome<void> kill(const std::string& name);
  nlohmann::json list() const;

 private:
  struct Vm {
    std::string name;
    std::uint32_t id = 0;
    std::uint64_t ticket = 0;  ///< the ticket of this clone; 0: the first machine
    std::unique_ptr<Machine> machine;
    std::vector<std::string> drives;
    MachineNetwork::Part part;  ///< nullptr: there is no network
    Descriptor agent;
    AgentLine heard;
  };
  struct Ticket {
    std::string owner;
    CloneTable table;
    std::vector<Placement> others;  ///< the clones behind this host's, on other hosts
    std::uint32_t local = 0;        ///< clones on this host
    bool is_joined = false;         ///< the owner's agent waits for the end of all clones
  };
  struct Answer {
    int error = 0;
    std::string text;
  };

  Outcome<void> make_network();
  MachineNetwork::Part take_part();
  Outcome<void> direct_to(const Machine& machine);
  Outcome<std::unique_ptr<Machine>> new_machine(Place place, const MachineNetwork::Part& part);
  Place place_for(std::uint32_t id, const std::string& memory, Memory kind,
                  std::vector<std::string> drives);
  Outcome<std::string> new_memory();
  Outcome<std::vector<std::string>> overlays_of(const std::vector<std::string>& bases);
  Outcome<void> make_shared(Vm& vm);
  Outcome<std::vector<std::string>> clone(Vm& vm, std::uint64_t ticket, ForkFigures& figures);
  Outcome<std::vector<Vm>> clones_of(const Vm& vm, std::uint64_t ticket,
                                     std::unique_ptr<Machine>& parent);
  Outcome<void> write_image(int memory, const std::vector<std::string>& disks,
                            const std::string& descriptor, const std::string& folder);
  std::vector<std::string> start_others(const std::string& name, std::uint64_t ticket,
                                        const std::string& image);
  void drop_ticket(std::uint64_t ticket);
  void clone_ended(std::uint64_t ticket, std::uint32_t id, End end, int status,
                   const std::string& value);
  Outcome<void> transfer(Vm& vm, std::unique_ptr<Machine> parent, std::vector<Vm>& clones,
                         const std::string& descriptor, ForkFigures& figures);
  Answer new_ticket(Vm& vm, std::uint32_t count, std::uint64_t& number);
  void adopt(Vm vm);
  void listen_to(Vm& vm);
  void on_agent(const std::string& name);
  void on_line(Vm& vm, const std::string& line);
  void say(Vm& vm, const std::string& line);
  std::string identity(const Vm& vm) const;
  void answer_join(std::uint64_t ticket);
  void machine_ended(const std::string& name, End end, int status, const std::string& value);

  Reactor& reactor_;
  Watches& watches_;
  const QemuCommand command_;
  const Parts parts_;
  std::unique_ptr<MachineNetwork> network_;
  std::map<std::string, Vm> vms_;
  std::map<std::uint64_t, Ticket> tickets_;
  std::map<std::string, Descriptor> memories_;  ///< memfds by the path that QEMU opens
  std::unique_ptr<RemoteMachines> others_;
  std::uint64_t tickets_made_ = 0;
  std::uint64_t places_made_ = 0;
};

}  // namespace stdchk::fork::vm
