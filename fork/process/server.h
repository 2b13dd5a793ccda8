#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/runtime/reactor.h"
#include "fork/process/connection.h"
#include "fork/process/family_network.h"
#include "fork/process/ticket_run.h"
#include "fork/process/watches.h"
#include "fork/ticket/allocator.h"

namespace stdchk::fork {

/// A Server answers the calls of stdchk_fork.h on this host. The socket tells the caller's pid: a
/// process owns the tickets that it requested, and no other process can use them. When the owner
/// ends, its clones end.
///
/// Owns: connections, tickets, networks of families. Threads: the reactor's.
/// Limits: kTicketsMax tickets, kClonesMax clones in one.
class Server {
 public:
  struct Parts {
    std::string socket;        ///< path; its folder exists
    std::string init_program;  ///< path of stdchk-fork-init
    std::string host_name;
    std::optional<Subnet> subnet;  ///< none: clones have only the loopback
    FamilyNetwork::Reach reach = FamilyNetwork::Reach::kFamily;
    RemoteParts remote;              ///< how other hosts of tickets are reached
    std::uint64_t first_ticket = 0;  ///< numbers of tickets begin behind this one
    std::uint64_t clone_bytes = 0;   ///< what a clone is charged with
  };
  static constexpr std::uint32_t kClonesMax = 250;
  static constexpr std::size_t kTicketsMax = 1024;

  Server(Reactor& reactor, Allocator& allocator, Parts parts);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Errors: a sentence.
  Outcome<void> listen();
  /// Serves the clones of a ticket of another host. The ticket lives as long as this object.
  TicketRun& host_ticket(TicketRun::Parts parts, TicketRun::Calls calls);
  Watches& watches() { return watches_; }

 private:
  struct Family {
    std::uint32_t index = 0;
    std::shared_ptr<FamilyNetwork> network;
  };
  struct Owner {
    Process process;
    std::set<std::uint64_t> tickets;
    std::shared_ptr<Family> family;
  };
  struct Ticket {
    pid_t owner = 0;
    std::shared_ptr<Family> family;
    std::unique_ptr<TicketRun> run;
    std::set<int> joiners;   ///< connections that wait for the end of all clones
    bool is_orphan = false;  ///< the owner has ended, and the clones outlive it
  };

  void accept();
  void on_record(int fd);
  void dispatch(Connection& connection, const local::Record& record, Descriptor passed);
  void request(Connection& connection, const local::Record& record);
  void prepared(std::uint64_t number, int fd, const std::string& problem);
  void clone(Connection& connection, Ticket& ticket);
  void source(int fd, const local::Record& record, Descriptor passed);
  void exit(Connection& connection, const local::Record& record);
  void join(Connection& connection, std::uint64_t number);
  void answer_joiners(std::uint64_t number);
  void list(Connection& connection);
  /// The caller's ticket. nullptr: the caller was told that it has none of that number.
  Ticket* own_ticket(Connection& connection, std::uint64_t number);
  void kill(Connection& connection, const local::Record& record);
  Outcome<Owner*> owner_of(const Process& caller, const Sandbox* inside,
                           std::shared_ptr<Family> above);
  Outcome<std::shared_ptr<Family>> new_family();
  void owner_ended(pid_t pid);
  /// Ends a ticket in the reactor's next turn.
  void drop_ticket(std::uint64_t number);
  void hang_up(int fd);

  Reactor& reactor_;
  Allocator& allocator_;
  const Parts parts_;
  Watches watches_;
  Descriptor listener_;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::set<std::uint32_t> families_;  ///< numbers in use; families take theirs out
  std::map<pid_t, Owner> owners_;
  std::map<std::uint64_t, Ticket> tickets_;
  std::uint64_t tickets_made_ = 0;
};

}  // namespace stdchk::fork
