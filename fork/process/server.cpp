#include "fork/process/server.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "fork/process/sandbox_protocol.h"

namespace stdchk::fork {

namespace {

constexpr std::uint32_t kNetworkTriesMax = 4;
constexpr const char* kCallerEnded = "The calling process has ended.";

}  // namespace

using local::Kind;
using local::Record;

Server::Server(Reactor& reactor, Allocator& allocator, Parts parts)
    : reactor_(reactor), allocator_(allocator), parts_(std::move(parts)) {
  reactor_.add(watches_);
}

Server::~Server() {
  for (auto& [fd, connection] : connections_) watches_.remove(fd);
  tickets_.clear();
  if (listener_) ::unlink(parts_.socket.c_str());
  reactor_.remove(watches_);
}

Outcome<void> Server::listen() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (parts_.socket.size() >= sizeof(address.sun_path)) {
    return problem(fmt::format("The path {} is longer than 107 bytes.", parts_.socket));
  }
  std::memcpy(address.sun_path, parts_.socket.data(), parts_.socket.size());
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  ::unlink(parts_.socket.c_str());
  const mode_t before = ::umask(0177);
  const bool bound =
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::listen(listener_.get(), 512) == 0;
  ::umask(before);
  if (!bound) {
    const int error = errno;
    listener_ = Descriptor();
    return problem(
        fmt::format("The socket {} cannot be made: {}.", parts_.socket, std::strerror(error)));
  }
  watches_.add(listener_.get(), [this] { accept(); });
  return {};
}

void Server::accept() {
  for (;;) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    auto connection = std::make_unique<Connection>(std::move(socket));
    const int fd = connection->fd();
    if (connection->peer_uid() != ::geteuid() || !connection->peer()) {
      log::warning("a process of uid {} was refused", connection->peer_uid());
      connection->done(EPERM,
                       "stdchk-forkd serves only processes of its own user on its own host.");
      continue;
    }
    connections_[fd] = std::move(connection);
    watches_.add(fd, [this, fd] { on_record(fd); });
  }
}

void Server::hang_up(int fd) {
  watches_.remove(fd);
  connections_.erase(fd);
  for (auto& [number, ticket] : tickets_) ticket.joiners.erase(fd);
}

void Server::on_record(int fd) {
  Connection& connection = *connections_.at(fd);
  Record record;
  Process sender;
  Descriptor passed;
  switch (connection.receive(record, sender, passed)) {
    case Connection::Got::kNothing:
      return;
    case Connection::Got::kEnd:
      return hang_up(fd);
    case Connection::Got::kRecord:
      return dispatch(connection, record, std::move(passed));
  }
}

void Server::dispatch(Connection& connection, const Record& record, Descriptor passed) {
  // A child may hold the socket of a process that has ended, whose pid another process may have.
  if (!connection.peer()->is_alive()) {
    connection.done(ESRCH, kCallerEnded);
    return;
  }
  switch (record.kind) {
    case Kind::kTicket:
      return request(connection, record);
    case Kind::kClone:
      if (Ticket* ticket = own_ticket(connection, record.ticket)) clone(connection, *ticket);
      return;
    case Kind::kSource:
    case Kind::kMemory:
      return source(connection.fd(), record, std::move(passed));
    case Kind::kExit:
      return exit(connection, record);
    case Kind::kJoin:
      return join(connection, record.ticket);
    case Kind::kKill:
      return kill(connection, record);
    case Kind::kList:
      return list(connection);
    default:
      connection.done(EPROTO, "The daemon does not know this request.");
  }
}

/// Clones without a parent can be ended by every process outside the sandboxes.
void Server::kill(Connection& connection, const Record& record) {
  const auto found = tickets_.find(record.ticket);
  const bool is_orphan =
      found != tickets_.end() && found->second.is_orphan &&
      connection.peer()->pid_namespace() == ProcessHandle(::getpid()).pid_namespace();
  Ticket* ticket = is_orphan ? &found->second : own_ticket(connection, record.ticket);
  if (ticket == nullptr) return;
  if (record.id == 0)
    ticket->run->kill_all();
  else
    ticket->run->end_clone(record.id, End::kKilled, 0, "");
  connection.done(0);
}

Outcome<std::shared_ptr<Server::Family>> Server::new_family() {
  auto family = std::make_shared<Family>();
  if (!parts_.subnet) return family;
  std::shared_ptr<FamilyNetwork> network;
  std::string why = "No part of --network is free: end a family of clones first.";
  std::uint32_t tries = 0;
  for (; !network && family->index < parts_.subnet->families; family->index += network ? 0 : 1) {
    if (families_.contains(family->index) || FamilyNetwork::is_taken(family->index)) continue;
    auto made = std::make_shared<FamilyNetwork>(*parts_.subnet, family->index, parts_.reach);
    if (auto started = made->start(); started) {
      network = std::move(made);
    } else if (why = started.error().text; ++tries == kNetworkTriesMax) {
      break;
    }
  }
  if (!network) return problem(why);
  family->network = std::move(network);
  families_.insert(family->index);
  return std::shared_ptr<Family>(family.get(), [this, family](Family* f) mutable {
    families_.erase(f->index);
    family.reset();
  });
}

Outcome<Server::Owner*> Server::owner_of(const Process& caller, const Sandbox* inside,
                                         std::shared_ptr<Family> above) {
  const pid_t pid = caller->pid();
  if (const auto found = owners_.find(pid); found != owners_.end()) {
    if (found->second.process->is_alive()) return &found->second;
    owner_ended(pid);
  }
  if (inside == nullptr) {
    auto made = new_family();
    if (!made) return problem(made.error());
    above = std::move(*made);
  }
  if (!caller->is_alive()) return problem(kCallerEnded);
  watches_.add(caller->pidfd(), [this, pid] { owner_ended(pid); });
  return &(owners_[pid] = Owner{caller, {}, std::move(above)});
}

void Server::request(Connection& connection, const Record& record) {
  if (record.count == 0 || record.count > kClonesMax || tickets_.size() >= kTicketsMax) {
    connection.done(EINVAL,
                    fmt::format("A ticket has 1 to {} clones, and there are at most {} tickets.",
                                kClonesMax, kTicketsMax));
    return;
  }
  const Process& caller = connection.peer();
  const pid_t pid = caller->pid();
  const Sandbox* inside = nullptr;
  std::shared_ptr<Family> family;
  const std::uint64_t space = caller->pid_namespace();
  for (const auto& [number, ticket] : tickets_) {
    if (const Sandbox* found = ticket.run->sandbox_of(space))
      inside = found, family = ticket.family;
  }
  const auto owner = owner_of(caller, inside, family);
  if (!owner) {
    connection.done(EIO, owner.error().text);
    return;
  }
  const std::uint64_t number = parts_.first_ticket + ++tickets_made_;
  // CRIU cannot dump a clone for other hosts: its namespaces are not the daemon's.
  const auto placed =
      allocator_.request(number, {record.count, parts_.clone_bytes, inside != nullptr});
  std::uint32_t count = 0, local = 0;
  std::vector<Placement> others;
  if (placed) {
    for (const Placement& placement : *placed) {
      count += placement.count;
      if (placement.host.empty())
        local += placement.count;
      else
        others.push_back(placement);
    }
  }
  if (count == 0) {
    allocator_.release(number);
    connection.done(EAGAIN, placed ? "No slot or no memory is free: " + allocator_.describe()
                                   : placed.error().text);
    if ((*owner)->tickets.empty()) owner_ended(pid);
    return;
  }
  (*owner)->tickets.insert(number);
  Ticket& ticket = tickets_[number];
  ticket.owner = pid;
  ticket.family = (*owner)->family;
  TicketRun::Parts parts{number,
                         local,
                         (record.options & local::kHierarchical) != 0,
                         (record.options & local::kOutlives) != 0,
                         parts_.init_program,
                         fmt::format("{}/{}", STDCHK_FORK_STATE, number),
                         parts_.socket.substr(0, parts_.socket.rfind('/')),
                         parts_.host_name,
                         inside,
                         ticket.family->network};
  parts.others = std::move(others);
  parts.remote = parts_.remote;
  parts.socket = parts_.socket;
  const int fd = connection.fd();
  ticket.run = std::make_unique<TicketRun>(
      reactor_, watches_, std::move(parts),
      TicketRun::Calls{
          [this, number, fd](const std::string& problem) { prepared(number, fd, problem); },
          [this, number] { answer_joiners(number); }});
  ticket.joiners.insert(fd);  // until it is answered: so hang_up() forgets it
  ticket.run->prepare();
}

void Server::prepared(std::uint64_t number, int fd, const std::string& problem) {
  Ticket& ticket = tickets_.at(number);
  const bool waits = ticket.joiners.erase(fd) > 0;
  if (!problem.empty() || !waits) {
    if (waits) connections_.at(fd)->done(EIO, problem);
    return drop_ticket(number);
  }
  Record record;
  record.ticket = number;
  record.count = static_cast<std::uint32_t>(ticket.run->table().clones().size());
  if (!connections_.at(fd)->send(record)) drop_ticket(number);
}

TicketRun& Server::host_ticket(TicketRun::Parts parts, TicketRun::Calls calls) {
  Ticket& ticket = tickets_[parts.number];
  ticket.family = std::make_shared<Family>();
  ticket.run = std::make_unique<TicketRun>(reactor_, watches_, std::move(parts), std::move(calls));
  ticket.run->prepare();
  return *ticket.run;
}

Server::Ticket* Server::own_ticket(Connection& connection, std::uint64_t number) {
  const auto found = tickets_.find(number);
  const auto owner = owners_.find(connection.peer()->pid());
  if (found != tickets_.end() && owner != owners_.end() && owner->second.process->is_alive() &&
      owner->second.tickets.contains(number)) {
    return &found->second;
  }
  connection.done(ENOENT, fmt::format("This process has no ticket {}.", number));
  return nullptr;
}

void Server::clone(Connection& connection, Ticket& ticket) {
  std::array<std::uint64_t, 2> token{};
  if (!ticket.run->freeze(token)) {
    connection.done(EBUSY, "The ticket was used for a clone already.");
    return;
  }
  Record record;
  record.token[0] = token[0];
  record.token[1] = token[1];
  connection.send(record);
}

void Server::source(int fd, const Record& record, Descriptor passed) {
  const auto found = tickets_.find(record.ticket);
  auto& connection = connections_.at(fd);
  if (found == tickets_.end()) {
    connection->done(ENOENT, "There is no such ticket.");
    return;
  }
  TicketRun& run = *found->second.run;
  const Status came = record.kind == Kind::kMemory
                          ? run.memory_came(record, connection, std::move(passed))
                          : run.source_came(record, connection);
  if (!came) {
    connection->done(EPERM, describe(came.error()));
    return;
  }
  connections_.erase(fd);
}

void Server::exit(Connection& connection, const Record& record) {
  for (auto& [number, ticket] : tickets_) {
    const std::uint32_t id = ticket.run->clone_of(*connection.peer(), record.id);
    if (id == 0) continue;
    // The answer comes first: the end of the clone ends the caller.
    connection.done(0);
    ticket.run->end_clone(id, End::kExited, record.status,
                          std::string(record.value, record.value_bytes));
    return;
  }
  connection.done(ESRCH, "The calling process is no clone.");
}

void Server::join(Connection& connection, std::uint64_t number) {
  Ticket* ticket = own_ticket(connection, number);
  if (ticket == nullptr) return;
  if (ticket->run->table().state() == TicketState::kReserved) {
    connection.done(0);
    return drop_ticket(number);
  }
  ticket->joiners.insert(connection.fd());
  answer_joiners(number);
}

void Server::answer_joiners(std::uint64_t number) {
  const auto found = tickets_.find(number);
  if (found == tickets_.end() || !found->second.run) return;
  const CloneTable& table = found->second.run->table();
  if (table.all_ended() && found->second.is_orphan) return drop_ticket(number);
  if (!table.all_ended() || found->second.joiners.empty()) return;
  allocator_.release(number);  // the parent may request these slots right after the answer
  for (const int fd : std::exchange(found->second.joiners, {})) {
    Connection& connection = *connections_.at(fd);
    for (const Clone& clone : table.clones()) {
      Record record;
      record.kind = Kind::kResult;
      record.id = clone.id;
      record.end = static_cast<std::uint32_t>(clone.end);
      record.status = clone.status;
      set_value(record, clone.value);
      connection.send(record);
    }
    connection.done(0);
  }
  drop_ticket(number);
}

void Server::drop_ticket(std::uint64_t number) {
  const Status posted = reactor_.post([this, number] {
    const auto found = tickets_.find(number);
    if (found == tickets_.end()) return;
    const pid_t pid = found->second.owner;
    for (const int fd : found->second.joiners) {
      connections_.at(fd)->done(ECANCELED, "The ticket was cancelled.");
    }
    tickets_.erase(found);
    allocator_.release(number);
    const auto owner = owners_.find(pid);
    if (owner == owners_.end()) return;
    owner->second.tickets.erase(number);
  });
  if (!posted) log::error("ticket {} stays: {}", number, describe(posted.error()));
}

void Server::owner_ended(pid_t pid) {
  const auto found = owners_.find(pid);
  if (found == owners_.end()) return;
  for (const std::uint64_t number : found->second.tickets) {
    Ticket& ticket = tickets_.at(number);
    const CloneTable& table = ticket.run->table();
    if (ticket.run->parts().outlives && table.state() != TicketState::kReserved &&
        !table.all_ended()) {
      log::info("ticket {}: its parent, process {}, has ended; its clones go on", number, pid);
      ticket.is_orphan = true;
      ticket.owner = 0;  // another process may get the number
      continue;
    }
    log::info("ticket {}: its parent, process {}, has ended", number, pid);
    drop_ticket(number);
  }
  watches_.remove(found->second.process->pidfd());
  owners_.erase(found);
}

void Server::list(Connection& connection) {
  std::string text = allocator_.describe();
  for (const auto& [number, ticket] : tickets_) {
    const CloneTable& table = ticket.run->table();
    text += fmt::format("ticket {}: parent {}, {} clones, {} run, {} ended{}\n", number,
                        ticket.owner, table.clones().size(), table.count_in(CloneState::kRunning),
                        table.count_in(CloneState::kEnded),
                        ticket.run->is_independent() ? ", need nothing of the parent" : "");
  }
  connection.done(0, text);
}

}  // namespace stdchk::fork
