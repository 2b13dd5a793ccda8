// The guests' side of a Family: lines over the port stdchk.fork.0. fork/vm/guest_protocol.md has
// them all.
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <sstream>
#include <string>

#include "core/base/log.h"
#include "fork/vm/family.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kValueHexMax = 8192;

bool is_hex(const std::string& text) {
  return text.size() % 2 == 0 && text.size() <= kValueHexMax &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

void Family::say(Vm& vm, const std::string& line) {
  const std::string text = line + "\n";
  if (!vm.agent || ::send(vm.agent.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                       static_cast<ssize_t>(text.size())) {
    log::warning("{}: its agent does not listen", vm.name);
  }
}

void Family::on_agent(const std::string& name) {
  const auto found = vms_.find(name);
  if (found == vms_.end()) return;
  Vm& vm = found->second;
  char bytes[4096];
  const ssize_t n = ::recv(vm.agent.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    watches_.remove(vm.agent.get());
    vm.agent = Descriptor();
    return;
  }
  if (const auto line = vm.heard.add({bytes, static_cast<std::size_t>(n)})) on_line(vm, *line);
}

void Family::on_line(Vm& vm, const std::string& line) {
  std::istringstream in(line);
  std::string word;
  std::uint64_t number = 0;
  in >> word;
  const auto own = [&](std::uint64_t ticket) {
    const auto found = tickets_.find(ticket);
    return found != tickets_.end() && found->second.owner == vm.name;
  };
  if (word == "ticket" && in >> number) {
    std::uint64_t ticket = 0;
    const Answer answer = new_ticket(
        vm, static_cast<std::uint32_t>(std::min<std::uint64_t>(number, 1 << 20)), ticket);
    if (answer.error != 0) return say(vm, fmt::format("error {} {}", answer.error, answer.text));
    return say(vm, fmt::format("ticket {} {}", ticket, tickets_.at(ticket).table.clones().size()));
  }
  if (word == "who") return say(vm, "you " + identity(vm));
  if (word == "exit") {
    int status = 0;
    std::string value;
    in >> status >> value;
    if (vm.ticket == 0 && parts_.count == 0)
      return say(vm, fmt::format("error {} this machine is no clone", ESRCH));
    return machine_ended(vm.name, End::kExited, status, is_hex(value) ? value : "");
  }
  if (!(in >> number) || !own(number))
    return say(vm, fmt::format("error {} no such ticket", ENOENT));
  if (word == "clone") {
    ForkFigures figures;
    const std::string name = vm.name;
    const auto names = clone(vm, number, figures);
    Vm& parent = vms_.at(name);
    if (!names) return say(parent, fmt::format("error {} {}", EIO, names.error().text));
    log::info("{}: {} clones, away for {:.0f} ms, all run after {:.0f} ms, descriptor {} bytes",
              name, names->size(), figures.paused_s * 1e3, figures.loaded_s * 1e3,
              figures.descriptor_bytes);
    return say(parent, fmt::format("id 0 {} -", names->size()));
  }
  if (word == "join") {
    if (tickets_.at(number).table.state() == TicketState::kReserved) {
      drop_ticket(number);
      return say(vm, "done");
    }
    tickets_.at(number).is_joined = true;
    return answer_join(number);
  }
  if (word == "kill") {
    const std::string own_name = vm.name;
    std::vector<std::string> names;
    for (const auto& [name, other] : vms_) {
      if (other.ticket == number) names.push_back(name);
    }
    for (const std::string& name : names) machine_ended(name, End::kKilled, 0, "");
    for (const auto& each : others_->list()) {
      if (each.ticket == number) others_->kill(each.name);
    }
    return say(vms_.at(own_name), "done");
  }
  say(vm, fmt::format("error {} unknown request", EPROTO));
}

void Family::answer_join(std::uint64_t number) {
  const auto found = tickets_.find(number);
  if (found == tickets_.end() || !found->second.is_joined || !found->second.table.all_ended())
    return;
  const auto owner = vms_.find(found->second.owner);
  if (owner != vms_.end()) {
    for (const Clone& clone : found->second.table.clones()) {
      say(owner->second,
          fmt::format("result {} {} {} {}", clone.id, static_cast<std::uint32_t>(clone.end),
                      clone.status, clone.value.empty() ? "-" : clone.value));
    }
    say(owner->second, "done");
  }
  // In the reactor's next turn: a remote clone whose end leads here is still in use.
  tickets_.erase(found);
  parts_.hosts->release(number);
  const Status posted = reactor_.post([this, number] { others_->drop(number); });
  if (!posted) log::error("ticket {} stays: {}", number, describe(posted.error()));
}

}  // namespace stdchk::fork::vm
