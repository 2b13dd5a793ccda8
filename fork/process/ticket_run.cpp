#include "fork/process/ticket_run.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "core/crypto/secret.h"

namespace stdchk::fork {
namespace {

constexpr Duration kPrepareMax = std::chrono::seconds(30);
constexpr Duration kSourceMax = std::chrono::seconds(30);
constexpr Duration kStartMax = std::chrono::seconds(60);

void kill_process(int pidfd) { ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0); }

}  // namespace

TicketRun::TicketRun(Reactor& reactor, Watches& watches, Parts parts, Calls calls)
    : reactor_(reactor),
      watches_(watches),
      parts_(std::move(parts)),
      calls_(std::move(calls)),
      table_(parts_.count) {}

TicketRun::~TicketRun() {
  reactor_.cancel(deadline_);
  if (source_) watches_.remove(source_->fd());
  for (auto& [id, process] : processes_) watches_.remove(process.pidfd.get());
  for (const Place& place : places_) {
    if (place.host_part != 0) parts_.network->give_back(place.host_part);
  }
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
  limit(kPrepareMax, "The namespaces of the clones were not ready within 30 s.");
  places_.resize(parts_.is_hierarchical ? 1 : parts_.count);
  for (std::size_t i = 0; i < places_.size(); i++) {
    Place& place = places_[i];
    place.host_part = parts_.network ? parts_.network->take() : 0;
    if (parts_.network && place.host_part == 0) {
      return prepared("The family has no free address: it has 253 clones.");
    }
    Sandbox::Parts parts{
        parts_.init_program, fmt::format("{}-{}", parts_.folder, i + 1), parts_.sockets,
        fmt::format("{}-{}-{}", parts_.host_name, parts_.number, i + 1), parts_.parent};
    place.sandbox = std::make_unique<Sandbox>(
        watches_, std::move(parts),
        Sandbox::Calls{[this, &place](Sandbox&) {
                         place.is_here = true;
                         on_here();
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

void TicketRun::on_here() {
  if (is_prepared_) return;
  if (!std::all_of(places_.begin(), places_.end(), [](const Place& p) { return p.is_here; }))
    return;
  if (parts_.network) {
    std::vector<Cable> cables;
    for (const Place& place : places_) {
      cables.push_back({place.sandbox->first_process(), place.host_part});
    }
    if (auto connected = parts_.network->connect(cables); !connected) {
      return prepared(connected.error());
    }
  }
  for (const Place& place : places_) {
    place.sandbox->set_address(parts_.network ? parts_.network->address(place.host_part)
                                              : Address());
  }
}

void TicketRun::on_ready() {
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

Status TicketRun::source_came(const local::Record& record,
                              std::unique_ptr<Connection>& connection) {
  if (record.token[0] != token_[0] || record.token[1] != token_[1]) {
    return fail(Code::kPermission, "fork.source");
  }
  STDCHK_TRY(table_.source_came());
  source_ = std::move(connection);
  watches_.remove(source_->fd());
  watches_.add(source_->fd(), [this] { on_source(); });
  limit(kStartMax, "The clones were not running within 60 s.");
  start_next();
  return {};
}

void TicketRun::start_next() {
  if (!source_) return;
  const auto id = table_.next_to_start();
  local::Record record;
  if (!id) {
    if (table_.state() != TicketState::kCloned || is_source_told_) return;
    is_source_told_ = true;
    record.kind = local::Kind::kEnd;
    source_->send(record);
    return;
  }
  record.kind = local::Kind::kStart;
  record.id = *id;
  record.ticket = parts_.number;
  if (!source_->send(record, places_[place_of(*id)].sandbox->pidfd())) {
    lose_source("The frozen copy of the parent has ended.");
  }
}

void TicketRun::on_source() {
  local::Record record;
  pid_t sender = 0;
  switch (source_->receive(record, sender)) {
    case Connection::Got::kNothing:
      return;
    case Connection::Got::kEnd:
      return lose_source("The frozen copy of the parent has ended.");
    case Connection::Got::kRecord:
      break;
  }
  if (record.kind == local::Kind::kStarted) {
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

void TicketRun::on_running(std::uint32_t id, pid_t pid) {
  const Clone* clone = table_.find(id);
  if (clone == nullptr || clone->state == CloneState::kEnded) return;
  const Sandbox& sandbox = *places_[place_of(id)].sandbox;
  Process process{pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  // A clone that has ended already is in no namespace.
  if (!process.pidfd || pid_namespace_of(pid) != sandbox.pid_namespace()) {
    return end_clone(id, End::kDied, 0, "");
  }
  if (!table_.running(id)) return;
  watches_.add(process.pidfd.get(), [this, id] { end_clone(id, End::kDied, 0, ""); });
  processes_[id] = std::move(process);
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

std::uint32_t TicketRun::clone_of(pid_t pid, std::uint32_t claimed) const {
  for (const auto& [id, process] : processes_) {
    if (process.pid == pid) return id;
  }
  const std::uint64_t inside = pid_namespace_of(pid);
  for (std::size_t i = 0; i < places_.size() && inside != 0; i++) {
    const Sandbox* sandbox = places_[i].sandbox.get();
    if (sandbox == nullptr || sandbox->pid_namespace() != inside) continue;
    if (!parts_.is_hierarchical) return static_cast<std::uint32_t>(i + 1);
    // The record that says that the clone runs, which comes over another socket, may be behind this
    // call.
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
    watches_.remove(found->second.pidfd.get());
    kill_process(found->second.pidfd.get());
    processes_.erase(found);
  }
  if (parts_.is_hierarchical && !table_.all_ended()) return;
  if (const int first = places_[place_of(id)].sandbox->pidfd(); first >= 0) kill_process(first);
}

void TicketRun::kill_all() {
  if (table_.state() != TicketState::kCloned) lose_source("Killed by the parent.");
  for (const Clone& clone : table_.clones()) end_clone(clone.id, End::kKilled, 0, "");
}

}  // namespace stdchk::fork
