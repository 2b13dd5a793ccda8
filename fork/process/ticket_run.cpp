#include "fork/process/ticket_run.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <utility>

#include "core/base/host_address.h"
#include "core/base/log.h"
#include "core/crypto/secret.h"

namespace stdchk::fork {
namespace {

constexpr Duration kPrepareMax = std::chrono::seconds(30);
constexpr Duration kSourceMax = std::chrono::seconds(30);
constexpr Duration kStartMax = std::chrono::seconds(60);

constexpr const char* kNotReady = "The namespaces of the clones were not ready within 30 s.";
constexpr std::uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8

std::uint32_t total_of(const TicketRun::Parts& parts) {
  std::uint32_t total = parts.count;
  for (const Placement& placement : parts.others) total += placement.count;
  return total;
}

}  // namespace

TicketRun::TicketRun(Reactor& reactor, Watches& watches, Parts parts, Calls calls)
    : reactor_(reactor),
      watches_(watches),
      parts_(std::move(parts)),
      calls_(std::move(calls)),
      table_(total_of(parts_), parts_.count) {}

TicketRun::~TicketRun() {
  reactor_.cancel(deadline_);
  if (source_) watches_.remove(source_->fd());
  for (auto& [id, process] : processes_) watches_.remove(process->pidfd());
  for (const Place& place : places_) {
    if (place.host_part != 0) parts_.network->give_back(place.host_part);
  }
  disconnect_others();
}

void TicketRun::disconnect_others() {
  for (const std::uint32_t part : far_parts_) parts_.network->give_back(part);
  far_parts_.clear();
  if (tunnel_ != 0) parts_.network->remove_tunnel(tunnel_);
  tunnel_ = 0;
}

void TicketRun::limit(Duration time, const char* what) {
  reactor_.cancel(deadline_);
  deadline_ = reactor_.schedule_after(time, [this, what] {
    deadline_ = TimerId();
    if (!is_prepared_) return prepared(what);
    lose_source(what);
    // A clone outside its sandbox is useless.
    for (const Clone& clone : table_.clones()) {
      if (clone.state == CloneState::kStarted) end_clone(clone.id, End::kFailed, 0, what);
    }
  });
}

void TicketRun::prepare() {
  limit(kPrepareMax, kNotReady);
  places_.resize(parts_.is_hierarchical ? std::min<std::uint32_t>(parts_.count, 1) : parts_.count);
  // Before other hosts: clones there can do without an address, clones here cannot.
  for (Place& place : places_) {
    place.host_part = parts_.network ? parts_.network->take() : 0;
    if (parts_.network && place.host_part == 0) {
      return prepared("The family has no free address: it has 253 clones.");
    }
  }
  prepare_others();
  for (std::size_t i = 0; i < places_.size(); i++) {
    Place& place = places_[i];
    Sandbox::Parts parts{
        parts_.init_program, fmt::format("{}-{}", parts_.folder, i + 1),
        parts_.sockets,      fmt::format("{}-{}-{}", parts_.host_name, parts_.number, i + 1),
        parts_.parent,       parts_.sockets_at};
    place.sandbox = std::make_unique<Sandbox>(
        watches_, std::move(parts),
        Sandbox::Calls{[this, &place](Sandbox&) {
                         place.is_here = true;
                         on_local_ready();
                       },
                       [this](Sandbox&) { on_ready(); },
                       [this](Sandbox&, const std::string& why) {
                         if (!is_prepared_)
                           return prepared("No namespaces for a clone: " + why + ".");
                       }});
    if (const Status started = place.sandbox->start(); !started) {
      return prepared(describe(started.error()));
    }
  }
}

void TicketRun::on_local_ready() {
  if (is_prepared_) return;
  if (!std::all_of(places_.begin(), places_.end(), [](const Place& p) { return p.is_here; }))
    return;
  if (parts_.network) {
    std::vector<Cable> cables;
    for (const Place& place : places_) {
      cables.push_back({place.sandbox->first_process()->pid(), place.host_part});
    }
    if (auto connected = parts_.network->connect(cables); !connected) {
      return prepared(connected.error().text);
    }
  }
  for (const Place& place : places_) {
    place.sandbox->set_address(parts_.network ? parts_.network->address(place.host_part)
                                              : Address());
  }
}

void TicketRun::on_ready() {
  if (others_ && !others_->is_prepared()) return;
  const auto ready = [](const Place& p) { return p.sandbox && p.sandbox->is_ready(); };
  if (std::all_of(places_.begin(), places_.end(), ready)) prepared("");
}

void TicketRun::prepared(const std::string& problem) {
  if (is_prepared_) return;
  is_prepared_ = true;
  reactor_.cancel(deadline_);
  deadline_ = TimerId();
  calls_.on_prepared(problem);
}

Status TicketRun::freeze(std::array<std::uint64_t, 2>& token) {
  STDCHK_TRY(table_.freeze());
  fill_random(std::as_writable_bytes(std::span(token_)));
  token = token_;
  limit(kSourceMax, "The frozen copy of the parent did not come within 30 s.");
  return {};
}

void TicketRun::prepare_others() {
  if (parts_.others.empty()) return;
  others_ = std::make_unique<RemoteClones>(
      reactor_, watches_, parts_.remote, fmt::format("{}/ticket-{}", parts_.sockets, parts_.number),
      RemoteClones::Calls{
          [this](const std::string& problem) { problem.empty() ? on_ready() : prepared(problem); },
          [this](std::uint32_t id) {
            (void)table_.running(id);
            start_next();
            calls_.on_change();
          },
          [this](std::uint32_t id, End end, std::int32_t status, const std::string& value) {
            end_clone(id, end, status, value);
          },
          [this] { start_next(); }});
  HostTicket ticket;
  ticket.number = parts_.number;
  ticket.first_id = parts_.count + 1;
  ticket.is_hierarchical = parts_.is_hierarchical ? 1 : 0;
  ticket.outlives = parts_.outlives ? 1 : 0;
  std::snprintf(ticket.socket, sizeof(ticket.socket), "%s", parts_.socket.c_str());
  const auto networks = connect_others();
  limit(kPrepareMax, kNotReady);  // name servers have had their own time
  others_->prepare(ticket, parts_.others, networks);
}

/// Connects the family's network to the other hosts. Returns each host's part of it. After a
/// failure, clones on other hosts have only the loopback, and the family keeps their addresses.
std::vector<HostNetwork> TicketRun::connect_others() {
  std::vector<HostNetwork> networks(parts_.others.size());
  if (!parts_.network) return networks;
  const auto give_up = [&](const std::string& why) {
    log::warning("ticket {}: clones on other hosts have only the loopback network: {}",
                 parts_.number, why);
    disconnect_others();
    return std::vector<HostNetwork>(parts_.others.size());
  };
  Tunnel tunnel;
  fill_random(std::as_writable_bytes(std::span(&tunnel.number, 1)));
  tunnel.number = std::max<std::uint32_t>(tunnel.number >> 8U, 1);
  for (const Placement& placement : parts_.others) {
    const std::string host = placement.host.substr(placement.host.find('@') + 1);
    const auto address = ipv4_of(host);
    const auto own = address ? own_address_to(*address) : std::nullopt;
    if (!own) return give_up(host + " has no IPv4 address, or no route leads there.");
    // A tunnel to this host returns each packet to all, so the bridge mistakes where clones are.
    if (*own == *address || *own >> 24U == kLoopbackNetwork)
      return give_up(host + " is this host.");
    tunnel.own = *own;
    tunnel.peers.push_back(*address);
  }
  if (auto added = parts_.network->add_tunnel(tunnel); !added) return give_up(added.error().text);
  tunnel_ = tunnel.number;
  for (std::size_t i = 0; i < networks.size(); i++) {
    HostNetwork& network = networks[i];
    network.tunnel = tunnel.number;
    network.base = parts_.network->base();
    network.own = tunnel.peers[i];
    network.has_gateway = parts_.network->reaches_outside();
    network.peers = tunnel.peers;
    network.peers[i] = tunnel.own;
    const std::uint32_t count = parts_.is_hierarchical ? 1 : parts_.others[i].count;
    for (std::uint32_t part = 0; part < count; part++) {
      const std::uint32_t taken = parts_.network->take();
      if (taken == 0) return give_up("The family has no free address: it has 253 clones.");
      far_parts_.push_back(taken);
      network.parts.push_back(taken);
    }
  }
  return networks;
}

Status TicketRun::expect(const std::array<std::uint64_t, 2>& token,
                         std::function<void(Descriptor)> on_memory) {
  STDCHK_TRY(table_.freeze());
  token_ = token;
  on_memory_ = std::move(on_memory);
  limit(kSourceMax, "The parent was not restored within 30 s.");
  return {};
}

Status TicketRun::take_source(const local::Record& record,
                              std::unique_ptr<Connection>& connection) {
  if (record.token[0] != token_[0] || record.token[1] != token_[1]) {
    return fail(Code::kPermission, "fork.source");
  }
  STDCHK_TRY(table_.source_came());
  source_ = std::move(connection);
  watches_.remove(source_->fd());
  watches_.add(source_->fd(), [this] { on_source(); });
  limit(kStartMax, "The clones were not running within 60 s.");
  return {};
}

Status TicketRun::source_came(const local::Record& record,
                              std::unique_ptr<Connection>& connection) {
  if (on_memory_) return fail(Code::kBusy, "fork.source");
  STDCHK_TRY(take_source(record, connection));
  start_next();
  return {};
}

Status TicketRun::memory_came(const local::Record& record, std::unique_ptr<Connection>& connection,
                              Descriptor faults) {
  if (!on_memory_ || !faults) return fail(Code::kBusy, "fork.memory");
  STDCHK_TRY(take_source(record, connection));
  on_memory_(std::move(faults));
  start_next();
  return {};
}

/// Whether the frozen copy has pages for clones on other hosts.
bool TicketRun::needs_source() const {
  if (!others_ || others_->has_image()) return false;
  const auto& clones = table_.clones();
  return std::any_of(clones.begin(), clones.end(), [&](const Clone& c) {
    return c.id > parts_.count && c.state != CloneState::kEnded;
  });
}

void TicketRun::ask_for_image() {
  if (table_.state() == TicketState::kCloned) others_->keep_image();
  if (is_image_asked_ || table_.state() != TicketState::kStarting) return;
  is_image_asked_ = true;
  local::Record record;
  record.kind = local::Kind::kImage;
  source_->send(record);
}

void TicketRun::start_next() {
  if (!source_) return;
  const auto id = table_.next_to_start();
  local::Record record;
  if (!id) {
    if (needs_source()) return ask_for_image();
    if (table_.state() != TicketState::kCloned || is_source_notified_) return;
    is_source_notified_ = true;
    record.kind = local::Kind::kEnd;
    source_->send(record);
    return;
  }
  record.kind = local::Kind::kStart;
  record.id = *id + parts_.first_id - 1;
  record.ticket = parts_.number;
  if (!source_->send(record, places_[place_of(*id)].sandbox->pidfd())) {
    lose_source("The frozen copy of the parent has ended.");
  }
}

void TicketRun::on_source() {
  local::Record record;
  Process sender;
  Descriptor unwanted;
  switch (source_->receive(record, sender, unwanted)) {
    case Connection::Got::kNothing:
      return;
    case Connection::Got::kEnd:
      return lose_source("The frozen copy of the parent has ended.");
    case Connection::Got::kRecord:
      break;
  }
  record.id -= parts_.first_id - 1;
  if (record.kind == local::Kind::kImageReady && others_) {
    if (record.error != 0) return lose_source("The copy for other hosts cannot be forked.");
    others_->distribute(token_, sender, source_->peer(),
                        std::string(record.value, record.value_bytes));
  } else if (record.id == 0 || record.id > parts_.count) {
    return lose_source("The frozen copy of the parent named a clone that it does not make.");
  } else if (record.kind == local::Kind::kStarted) {
    if (!table_.started(record.id))
      log::debug("clone {} was running before it was started", record.id);
    start_next();
  } else if (record.kind == local::Kind::kRunning) {
    on_running(record.id, sender);
  } else if (record.kind == local::Kind::kStartFail) {
    end_clone(record.id, End::kFailed, record.error, std::string(record.value, record.value_bytes));
    start_next();
  }
}

void TicketRun::on_running(std::uint32_t id, const Process& process) {
  const Clone* clone = table_.find(id);
  if (clone == nullptr || clone->state == CloneState::kEnded) return;
  const Sandbox& sandbox = *places_[place_of(id)].sandbox;
  // A clone that has ended already is in no namespace.
  if (process->pid_namespace() != sandbox.pid_namespace()) {
    return end_clone(id, End::kDied, 0, "");
  }
  if (!table_.running(id)) return;
  watches_.add(process->pidfd(), [this, id] { end_clone(id, End::kDied, 0, ""); });
  processes_[id] = process;
  start_next();
  if (table_.count_in(CloneState::kStarted) == 0 && table_.state() == TicketState::kCloned) {
    reactor_.cancel(deadline_);
    deadline_ = TimerId();
  }
  calls_.on_change();
}

void TicketRun::lose_source(const std::string& why) {
  if (source_) {
    watches_.remove(source_->fd());
    source_.reset();
  }
  if (table_.state() == TicketState::kFreezing || table_.state() == TicketState::kStarting) {
    log::warning("ticket {}: {}", parts_.number, why);
  }
  table_.source_lost(why);
  calls_.on_change();
}

std::uint32_t TicketRun::clone_of(const ProcessHandle& caller, std::uint32_t claimed) const {
  for (const auto& [id, process] : processes_) {
    // A clone that has ended is listed until its pidfd was seen; its pid may be the caller's now.
    if (process->pid() == caller.pid() && process->is_alive()) return id;
  }
  const std::uint64_t inside = caller.pid_namespace();
  for (std::size_t i = 0; i < places_.size() && inside != 0; i++) {
    const Sandbox* sandbox = places_[i].sandbox.get();
    if (sandbox == nullptr || sandbox->pid_namespace() != inside) continue;
    if (!parts_.is_hierarchical) return static_cast<std::uint32_t>(i + 1);
    // The record that says that the clone runs, which comes over another socket, may be behind this
    // call.
    claimed -= parts_.first_id - 1;
    const Clone* clone = table_.find(claimed);
    return clone != nullptr && !processes_.contains(claimed) ? claimed : 0;
  }
  return 0;
}

const Sandbox* TicketRun::sandbox_of(std::uint64_t pid_namespace) const {
  for (const Place& place : places_) {
    if (place.sandbox && place.sandbox->pid_namespace() == pid_namespace)
      return place.sandbox.get();
  }
  return nullptr;
}

void TicketRun::end_clone(std::uint32_t id, End end, std::int32_t status,
                          const std::string& value) {
  if (!table_.ended(id, end, status, value)) return;
  if (end == End::kFailed) log::warning("ticket {}, clone {}: {}", parts_.number, id, value);
  tidy(id);
  start_next();
  calls_.on_change();
}

/// Ends the processes of a clone that has ended.
void TicketRun::tidy(std::uint32_t id) {
  if (const auto found = processes_.find(id); found != processes_.end()) {
    watches_.remove(found->second->pidfd());
    found->second->kill();
    processes_.erase(found);
  }
  if (id > parts_.count) return others_->kill(id);
  if (parts_.is_hierarchical && !table_.all_ended()) return;
  if (const Process& first = places_[place_of(id)].sandbox->first_process()) first->kill();
}

void TicketRun::kill_all() {
  if (table_.state() != TicketState::kCloned) lose_source("Killed by the parent.");
  for (const Clone& clone : table_.clones()) end_clone(clone.id, End::kKilled, 0, "");
}

}  // namespace stdchk::fork
