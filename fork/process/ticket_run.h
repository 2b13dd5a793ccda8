#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/runtime/reactor.h"
#include "fork/process/clone_table.h"
#include "fork/process/connection.h"
#include "fork/process/family_network.h"
#include "fork/process/remote_clones.h"
#include "fork/process/sandbox.h"
#include "fork/process/watches.h"

namespace stdchk::fork {

/// A TicketRun is one ticket on this host: its sandboxes, the frozen copy, and the processes of its
/// clones.
///
/// Owns: the sandboxes, and with them all processes inside. The destructor ends them.
/// Threads: the reactor's. Destroying the object within one of its Calls is a bug.
/// Errors: a clone that cannot be made is kFailed in the table, with the reason.
class TicketRun {
 public:
  struct Parts {
    std::uint64_t number = 0;
    std::uint32_t count = 0;  ///< on this host
    bool is_hierarchical = false;
    bool outlives = false;  ///< the clones go on when the parent ends
    std::string init_program;
    std::string folder;   ///< prefix of the sandboxes' folders
    std::string sockets;  ///< the folder of the daemon's socket
    std::string host_name;
    const Sandbox* parent = nullptr;         ///< the sandbox around the parent; nullptr: the host
    std::shared_ptr<FamilyNetwork> network;  ///< nullptr: clones have only the loopback
    std::uint32_t first_id = 1;              ///< of this host's clones, as the program sees them
    std::string sockets_at;         ///< where clones see `sockets`; empty: at the same path
    std::vector<Placement> others;  ///< the clones behind this host's, on other hosts
    RemoteParts remote;
    std::string socket;  ///< path of the daemon's socket
  };
  struct Calls {
    /// Called once. Empty: all sandboxes are ready. Otherwise a sentence that says what failed.
    std::function<void(const std::string&)> on_prepared;
    /// After each change of a clone's state.
    std::function<void()> on_change;
  };

  TicketRun(Reactor& reactor, Watches& watches, Parts parts, Calls calls);
  ~TicketRun();
  TicketRun(const TicketRun&) = delete;
  TicketRun& operator=(const TicketRun&) = delete;

  /// Starts the sandboxes.
  void prepare();
  const CloneTable& table() const { return table_; }
  const Parts& parts() const { return parts_; }
  bool is_prepared() const { return is_prepared_; }

  /// sf_clone was called. The frozen copy has 30 s to come with `token`.
  Status freeze(std::array<std::uint64_t, 2>& token);
  /// Takes the connection over when the record has the token.
  Status source_came(const local::Record& record, std::unique_ptr<Connection>& connection);
  /// On a host that is not the parent's: a process that is restored from the parent's image comes
  /// with `token`. `on_memory` gets its userfaultfd.
  Status expect(const std::array<std::uint64_t, 2>& token,
                std::function<void(Descriptor)> on_memory);
  Status memory_came(const local::Record& record, std::unique_ptr<Connection>& connection,
                     Descriptor faults);
  /// Returns the id of the clone that the process belongs to; 0: no clone of this ticket. `claimed`
  /// is the id that the process says it has: it counts among clones that share a sandbox, which can
  /// signal each other anyway.
  std::uint32_t clone_of(const ProcessHandle& caller, std::uint32_t claimed) const;
  /// Returns the sandbox with that pid namespace; nullptr: no sandbox of this ticket.
  const Sandbox* sandbox_of(std::uint64_t pid_namespace) const;
  /// Whether the clones need neither the parent nor its copy.
  bool is_independent() const { return table_.state() == TicketState::kCloned && !needs_source(); }
  /// Ends a clone's processes, too.
  void end_clone(std::uint32_t id, End end, std::int32_t status, const std::string& value);
  void kill_all();

 private:
  struct Place {
    std::unique_ptr<Sandbox> sandbox;
    std::uint32_t host_part = 0;
    bool is_here = false;
  };

  std::size_t place_of(std::uint32_t id) const { return parts_.is_hierarchical ? 0 : id - 1; }
  void on_local_ready();
  void on_ready();
  void prepared(const std::string& problem);
  void on_source();
  void lose_source(const std::string& why);
  void start_next();
  void on_running(std::uint32_t id, const Process& process);
  void limit(Duration time, const char* what);
  void tidy(std::uint32_t id);
  void prepare_others();
  std::vector<HostNetwork> connect_others();
  void disconnect_others();
  Status take_source(const local::Record& record, std::unique_ptr<Connection>& connection);
  bool needs_source() const;
  void ask_for_image();

  Reactor& reactor_;
  Watches& watches_;
  const Parts parts_;
  const Calls calls_;
  CloneTable table_;
  std::array<std::uint64_t, 2> token_{};
  std::vector<Place> places_;
  std::map<std::uint32_t, Process> processes_;
  std::unique_ptr<Connection> source_;
  TimerId deadline_;
  bool is_prepared_ = false;
  std::unique_ptr<RemoteClones> others_;
  std::function<void(Descriptor)> on_memory_;
  bool is_image_asked_ = false;
  bool is_source_notified_ = false;       ///< the source knows that all clones exist
  std::vector<std::uint32_t> far_parts_;  ///< last bytes of addresses on other hosts
  std::uint32_t tunnel_ = 0;              ///< to the other hosts; 0: none
};

}  // namespace stdchk::fork
