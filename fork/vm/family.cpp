#include "fork/vm/family.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/base/log.h"
#include "fork/vm/overlay.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::uint32_t kClonesMax = 250;

double seconds_since(Time began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Nobody writes to the memory file any more, except those who have mapped it for that already. The
/// kernel also refuses holes: QEMU punches them for pages that a guest gives up, and clones would
/// read zeros there.
void freeze(int memory) {
  if (::fcntl(memory, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)
    log::warning("The memory of a forked machine is not sealed: {}", std::strerror(errno));
}

/// The hardware address that a clone sets for its interface: locally administered, of ticket and
/// id.
std::string hardware_address(std::uint64_t ticket, std::uint32_t id) {
  return fmt::format("52:5f:{:02x}:{:02x}:{:02x}:{:02x}", (ticket >> 16) & 255, (ticket >> 8) & 255,
                     ticket & 255, id);
}

}  // namespace

Family::Family(Reactor& reactor, Watches& watches, QemuCommand command, Parts parts)
    : reactor_(reactor),
      watches_(watches),
      command_(std::move(command)),
      parts_(std::move(parts)),
      others_(std::make_unique<RemoteMachines>(
          watches, parts_.remote,
          [this](std::uint64_t ticket, std::uint32_t id, End end, int status,
                 const std::string& value) { clone_ended(ticket, id, end, status, value); })) {}

Family::~Family() {
  for (auto& [name, vm] : vms_) {
    if (vm.agent) watches_.remove(vm.agent.get());
    watches_.remove(vm.machine->pidfd());
  }
}

Outcome<std::string> Family::new_memory() {
  Descriptor memory(::memfd_create("stdchk-vm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(command_.memory_bytes())) != 0) {
    return problem(fmt::format("There is no memory for the machine: {}", std::strerror(errno)));
  }
  // QEMU opens it by this path. The memory is freed after the last machine and this process.
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), memory.get());
  memories_[path] = std::move(memory);
  return path;
}

Place Family::place_for(std::uint32_t id, const std::string& memory, Memory kind,
                        std::vector<std::string> drives) {
  Place place;
  place.folder = fmt::format("{}/{}", parts_.folder, ++places_made_);
  place.memory_file = memory;
  place.memory = kind;
  place.id = id;
  place.drives = std::move(drives);
  if (kind == Memory::kPrivate && command_.has_balloon()) place.environment = parts_.memory_library;
  return place;
}

Outcome<void> Family::make_network() {
  if (!parts_.subnet) return {};
  auto made = MachineNetwork::make(*parts_.subnet);
  if (!made) return problem(made.error());
  network_ = std::move(*made);
  return {};
}

MachineNetwork::Part Family::take_part() { return network_ ? network_->take() : nullptr; }

/// The network reaches the machine by this QEMU from now on.
Outcome<void> Family::direct_to(const Machine& machine) {
  return network_ ? network_->direct({machine.place().port}) : Outcome<void>();
}

Outcome<std::unique_ptr<Machine>> Family::new_machine(Place place,
                                                      const MachineNetwork::Part& part) {
  Descriptor tap;
  if (network_) {
    if (!part) return problem("The family's network has no free address.");
    auto socket = network_->add_socket(*part);
    if (!socket) return problem(socket.error());
    place.port = socket->port;
    tap = std::move(socket->tap);
  }
  auto machine = Machine::start(command_, place);
  if (!machine) return problem(machine.error());
  return std::make_unique<Machine>(std::move(*machine));
}

Outcome<void> Family::start() {
  if (auto made = make_network(); !made) return made;
  auto memory = new_memory();
  if (!memory) return problem(memory.error());
  Vm vm;
  vm.part = take_part();
  auto machine = new_machine(place_for(0, *memory, Memory::kShared, {}), vm.part);
  if (!machine) return problem(machine.error());
  if (auto answers = (*machine)->connect(); !answers) return answers;
  if (auto directed = direct_to(**machine); !directed) return directed;
  vm.name = parts_.name;
  vm.machine = std::move(*machine);
  vm.drives = command_.drives();
  adopt(std::move(vm));
  return {};
}

void Family::adopt(Vm vm) {
  const std::string name = vm.name;
  Vm& kept = vms_[name] = std::move(vm);
  listen_to(kept);
}

void Family::listen_to(Vm& vm) {
  const std::string name = vm.name;
  watches_.add(vm.machine->pidfd(), [this, name] { machine_ended(name, End::kDied, 0, ""); });
  vm.heard.clear();
  vm.agent = Descriptor(connect_unix(vm.machine->place().folder + "/agent"));
  if (!vm.agent)
    return log::warning("{}: its agent cannot be reached: {}", name, std::strerror(errno));
  watches_.add(vm.agent.get(), [this, name] { on_agent(name); });
}

Outcome<std::vector<std::string>> Family::overlays_of(const std::vector<std::string>& bases) {
  std::vector<std::string> overlays;
  for (const std::string& base : bases) {
    overlays.push_back(fmt::format("{}/disk-{}.qcow2", parts_.folder, ++places_made_));
    if (auto made = make_overlay(base, overlays.back()); !made) return problem(made.error());
  }
  return overlays;
}

/// Moves a machine whose memory is private, because it was forked before, to a memory file of its
/// own.
Outcome<void> Family::make_shared(Vm& vm) {
  if (vm.machine->place().memory == Memory::kShared) return {};
  auto memory = new_memory();
  if (!memory) return problem(memory.error());
  Place place = place_for(vm.id, *memory, Memory::kShared, vm.machine->place().drives);
  place.waits_for_state = true;
  auto next = new_machine(place, vm.part);
  if (!next) return problem(next.error());
  const std::string state = place.folder + "/state";
  if (auto done = (*next)->connect(); !done) return done;
  if (auto done = vm.machine->pause(); !done) return done;
  auto moved = vm.machine->save(state);
  if (moved) moved = direct_to(**next);
  if (moved) moved = (*next)->load(state, Memory::kPrivate);
  if (moved) moved = (*next)->wait_loaded();
  ::unlink(state.c_str());
  if (!moved) {
    (void)direct_to(*vm.machine);
    (void)vm.machine->resume();
    return moved;
  }
  watches_.remove(vm.machine->pidfd());
  if (vm.agent) watches_.remove(vm.agent.get());
  vm.machine = std::move(*next);
  listen_to(vm);
  return {};
}

/// Pauses the parent, and lets its successor and the clones go on from its state.
Outcome<void> Family::transfer(Vm& vm, std::unique_ptr<Machine> parent, std::vector<Vm>& clones,
                               const std::string& descriptor, ForkFigures& figures) {
  const Time began = std::chrono::steady_clock::now();
  if (auto done = vm.machine->pause(); !done) return done;
  auto done = vm.machine->save(descriptor);
  if (done) done = direct_to(*parent);
  if (done) {
    freeze(memories_.at(vm.machine->place().memory_file).get());
    done = parent->load(descriptor, Memory::kShared);
  }
  if (done) done = parent->wait_loaded();
  if (!done) {
    (void)direct_to(*vm.machine);
    (void)vm.machine->resume();
    return done;
  }
  figures.paused_s = seconds_since(began);
  watches_.remove(vm.machine->pidfd());
  if (vm.agent) watches_.remove(vm.agent.get());
  const std::string memory = vm.machine->place().memory_file;
  vm.drives = parent->place().drives;
  vm.machine = std::move(parent);
  listen_to(vm);
  if (network_ && !clones.empty()) {
    std::vector<Port> ports;
    for (const Vm& clone : clones) ports.push_back(clone.machine->place().port);
    if (auto directed = network_->direct(ports); !directed) return directed;
  }
  for (Vm& clone : clones) {
    if (auto begun = clone.machine->load(descriptor, Memory::kShared); !begun) return begun;
  }
  for (Vm& clone : clones) {
    if (auto loaded = clone.machine->wait_loaded(); !loaded) return loaded;
  }
  figures.loaded_s = seconds_since(began);
  struct stat s {};
  if (::stat(descriptor.c_str(), &s) == 0)
    figures.descriptor_bytes = static_cast<std::uint64_t>(s.st_size);
  memories_.erase(memory);  // all machines have mapped it
  return {};
}

/// Starts QEMU for each clone of this host, and for the parent's successor.
Outcome<std::vector<Family::Vm>> Family::clones_of(const Vm& vm, std::uint64_t number,
                                                   std::unique_ptr<Machine>& parent) {
  const std::string memory = vm.machine->place().memory_file;
  std::vector<Vm> clones;
  for (std::uint32_t id = 0; id <= tickets_.at(number).local; id++) {
    auto drives = overlays_of(vm.drives);
    if (!drives) return problem(drives.error());
    Place place = place_for(id == 0 ? vm.id : id, memory, Memory::kPrivate, *drives);
    place.waits_for_state = true;
    Vm clone;
    clone.part = id == 0 ? vm.part : take_part();
    auto machine = new_machine(std::move(place), clone.part);
    if (!machine) return problem(machine.error());
    if (id == 0) {
      parent = std::move(*machine);
      continue;
    }
    clone.name = fmt::format("{}.{}.{}", vm.name, number, id);
    clone.id = id;
    clone.ticket = number;
    clone.machine = std::move(*machine);
    clone.drives = *drives;
    clones.push_back(std::move(clone));
  }
  if (auto answers = parent->connect(); !answers) return problem(answers.error());
  for (Vm& clone : clones) {
    if (auto answers = clone.machine->connect(); !answers) return problem(answers.error());
  }
  return clones;
}

Outcome<std::vector<std::string>> Family::clone(Vm& vm, std::uint64_t number,
                                                ForkFigures& figures) {
  Ticket& ticket = tickets_.at(number);
  if (!ticket.table.freeze() || !ticket.table.source_came()) {
    return problem("The ticket was used for a clone already");
  }
  const auto fail = [&](const std::string& why) {
    ticket.table.source_lost(why);
    return problem(why);
  };
  if (auto shared = make_shared(vm); !shared) return fail(shared.error().text);
  const Time began = std::chrono::steady_clock::now();
  const std::vector<std::string> disks = vm.drives;
  const Descriptor memory(
      ::fcntl(memories_.at(vm.machine->place().memory_file).get(), F_DUPFD_CLOEXEC, 0));
  std::unique_ptr<Machine> parent;
  auto clones = clones_of(vm, number, parent);
  if (!clones) return fail(clones.error().text);
  figures.start_s = seconds_since(began);
  const std::string descriptor = parent->place().folder + "/descriptor";
  auto done = transfer(vm, std::move(parent), *clones, descriptor, figures);
  const std::string image = others_->image_folder(vm.name, number);
  if (done && !ticket.others.empty()) done = write_image(memory.get(), disks, descriptor, image);
  ::unlink(descriptor.c_str());
  if (!done) return fail(done.error().text);
  std::vector<std::string> names;
  for (Vm& clone : *clones) {
    (void)ticket.table.next_to_start();
    (void)ticket.table.running(clone.id);
    names.push_back(clone.name);
    adopt(std::move(clone));
    say(vms_.at(names.back()), "id " + identity(vms_.at(names.back())));
  }
  const auto others = start_others(vm.name, number, image);
  names.insert(names.end(), others.begin(), others.end());
  if (!others.empty()) figures.loaded_s = seconds_since(began) - figures.start_s;
  return names;
}

/// Starts a ticket's clones on other hosts from an image. Returns the names of the running clones.
std::vector<std::string> Family::start_others(const std::string& name, std::uint64_t number,
                                              const std::string& image) {
  Ticket& ticket = tickets_.at(number);
  const auto count = static_cast<std::uint32_t>(ticket.table.clones().size());
  std::uint32_t id = ticket.local;
  for (const Placement& placement : ticket.others) {
    for (std::uint32_t i = 0; i < placement.count; i++) {
      ++id;
      (void)ticket.table.running(id);  // a problem ends it
      others_->start({fmt::format("{}.{}.{}", name, number, id), placement.host, number, id, count},
                     image);
    }
  }
  if (!ticket.others.empty()) others_->wait_running(number);
  std::vector<std::string> names;
  for (const auto& each : others_->list()) {
    if (each.ticket == number) names.push_back(each.name);
  }
  return names;
}

Outcome<void> Family::start_from(const SavedMachine& image, std::uint32_t id,
                                 std::vector<std::string> environment) {
  if (auto made = make_network(); !made) return made;
  auto memory = new_memory();
  if (!memory) return problem(memory.error());
  if (environment.empty()) {
    if (auto read = fill_from(image.memory(), memories_.at(*memory).get()); !read) return read;
  }
  std::vector<std::string> disks;
  for (std::size_t i = 0; i < image.disks; i++) disks.push_back(image.disk(i));
  auto drives = overlays_of(disks);
  if (!drives) return problem(drives.error());
  Place place = place_for(id, *memory, Memory::kPrivate, *drives);
  place.waits_for_state = true;
  if (!environment.empty()) place.environment = std::move(environment);
  Vm vm;
  vm.part = take_part();
  auto machine = new_machine(std::move(place), vm.part);
  if (!machine) return problem(machine.error());
  auto done = (*machine)->connect();
  if (done) done = direct_to(**machine);
  if (done) done = (*machine)->load(image.descriptor(), Memory::kShared);
  if (done) done = (*machine)->wait_loaded();
  if (!done) return done;
  memories_.erase(*memory);
  vm.name = parts_.name;
  vm.id = id;
  vm.machine = std::move(*machine);
  vm.drives = *drives;
  adopt(std::move(vm));
  say(vms_.at(parts_.name), "id " + identity(vms_.at(parts_.name)));
  return {};
}

Outcome<void> Family::save(const std::string& name, const std::string& folder,
                           ForkFigures& figures) {
  const auto found = vms_.find(name);
  if (found == vms_.end()) return problem(fmt::format("There is no machine {}", name));
  Vm& vm = found->second;
  if (auto shared = make_shared(vm); !shared) return shared;
  const std::string memory = vm.machine->place().memory_file;
  const Descriptor kept(::fcntl(memories_.at(memory).get(), F_DUPFD_CLOEXEC, 0));
  const std::vector<std::string> bases = vm.drives;
  auto drives = overlays_of(bases);
  if (!drives) return problem(drives.error());
  Place place = place_for(vm.id, memory, Memory::kPrivate, *drives);
  place.waits_for_state = true;
  auto successor = new_machine(place, vm.part);
  if (!successor) return problem(successor.error());
  if (auto answers = (*successor)->connect(); !answers) return answers;
  std::vector<Vm> none;
  const std::string descriptor = place.folder + "/descriptor";
  if (auto done = transfer(vm, std::move(*successor), none, descriptor, figures); !done)
    return done;
  auto written = write_image(kept.get(), bases, descriptor, folder);
  ::unlink(descriptor.c_str());
  return written;
}

/// Writes an image from the former memory and disks of the machine. The machine runs on new ones,
/// so these do not change.
Outcome<void> Family::write_image(int memory, const std::vector<std::string>& disks,
                                  const std::string& descriptor, const std::string& folder) {
  const auto own = OwnFolder::make(folder, kImageRules);
  if (!own) return problem(own.error());
  const SavedMachine image{Descriptor(::fcntl(own->fd(), F_DUPFD_CLOEXEC, 0)), command_.words(),
                           disks.size(), command_.memory_bytes(), network_ != nullptr};
  if (auto copied = copy_to(memory, image.memory()); !copied) return copied;
  for (std::size_t i = 0; i < disks.size(); i++) {
    if (auto copied = copy_disk(disks[i], image.disk(i)); !copied) return copied;
  }
  const Descriptor state(::open(descriptor.c_str(), O_RDONLY | O_CLOEXEC));
  if (auto copied = copy_to(state.get(), image.descriptor()); !copied) return copied;
  return finish(image);
}

Family::Answer Family::new_ticket(Vm& vm, std::uint32_t count, std::uint64_t& number) {
  if (count == 0 || count > kClonesMax)
    return {EINVAL, fmt::format("a ticket has 1 to {} clones", kClonesMax)};
  number = ++tickets_made_;
  const auto placed = parts_.hosts->request(
      number, {count, parts_.clone_bytes, parts_.remote.image.folder.empty()});
  if (!placed) return {EIO, placed.error().text};
  std::uint32_t given = 0, local = 0;
  std::vector<Placement> others;
  for (const Placement& placement : *placed) {
    given += placement.count;
    if (placement.host.empty())
      local += placement.count;
    else
      others.push_back(placement);
  }
  if (given == 0) return {EAGAIN, "no slot or no memory is free"};
  tickets_.emplace(number, Ticket{vm.name, CloneTable(given, local), std::move(others), local});
  return {};
}

Outcome<std::vector<std::string>> Family::fork(const std::string& name, std::uint32_t count,
                                               ForkFigures& figures) {
  const auto found = vms_.find(name);
  if (found == vms_.end()) return problem(fmt::format("There is no machine {}", name));
  std::uint64_t number = 0;
  if (const Answer answer = new_ticket(found->second, count, number); answer.error != 0) {
    return problem(answer.text);
  }
  auto names = clone(found->second, number, figures);
  if (!names) {
    drop_ticket(number);
    return names;
  }
  say(found->second, fmt::format("forked {}", names->size()));
  return names;
}

Outcome<void> Family::kill(const std::string& name) {
  if (others_->kill(name)) return {};
  if (!vms_.contains(name)) return problem(fmt::format("There is no machine {}", name));
  machine_ended(name, End::kKilled, 0, "");
  return {};
}

void Family::machine_ended(const std::string& name, End end, int status, const std::string& value) {
  const auto found = vms_.find(name);
  if (found == vms_.end()) return;
  Vm vm = std::move(found->second);
  vms_.erase(found);
  watches_.remove(vm.machine->pidfd());
  if (vm.agent) watches_.remove(vm.agent.get());
  if (end == End::kDied && vm.ticket != 0)
    log::info("{} has ended: {}", name, vm.machine->last_words());
  memories_.erase(vm.machine->place().memory_file);
  for (const std::string& drive : vm.machine->place().drives) ::unlink(drive.c_str());
  vm.machine.reset();
  // The machine's own clones end, too.
  std::vector<std::uint64_t> own;
  for (const auto& [number, ticket] : tickets_) {
    if (ticket.owner == name) own.push_back(number);
  }
  for (const std::uint64_t number : own) {
    std::vector<std::string> names;
    for (const auto& [other, clone] : vms_) {
      if (clone.ticket == number) names.push_back(other);
    }
    for (const std::string& other : names) machine_ended(other, End::kKilled, 0, "");
    drop_ticket(number);
  }
  if (vm.ticket == 0) return parts_.on_end(end, status, value);
  clone_ended(vm.ticket, vm.id, end, status, value);
}

void Family::clone_ended(std::uint64_t number, std::uint32_t id, End end, int status,
                         const std::string& value) {
  const auto ticket = tickets_.find(number);
  if (ticket == tickets_.end()) return;
  ticket->second.table.ended(id, end, status, value);
  answer_join(number);
}

void Family::drop_ticket(std::uint64_t number) {
  tickets_.erase(number);
  others_->drop(number);
  parts_.hosts->release(number);
}

/// "ID COUNT HARDWARE-ADDRESS [IP/PREFIX]", as guest_protocol.md has it.
std::string Family::identity(const Vm& vm) const {
  const auto ticket = tickets_.find(vm.ticket);
  const std::size_t count =
      ticket != tickets_.end() ? ticket->second.table.clones().size() : std::max(1U, parts_.count);
  std::string addresses = "-";
  if (network_) {
    addresses = network_->addresses(*vm.part);
  } else if (vm.id != 0) {
    addresses = hardware_address(vm.ticket != 0 ? vm.ticket : parts_.ticket, vm.id);
  }
  return fmt::format("{} {} {}", vm.id, count, addresses);
}

nlohmann::json Family::list() const {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, vm] : vms_) {
    all.push_back({{"name", name},
                   {"id", vm.id},
                   {"pid", vm.machine->pid()},
                   {"ticket", vm.ticket},
                   {"memory_bytes", command_.memory_bytes()}});
    if (network_) all.back()["address"] = network_->address(*vm.part);
  }
  for (const auto& each : others_->list()) {
    all.push_back({{"name", each.name},
                   {"id", each.id},
                   {"host", each.host},
                   {"ticket", each.ticket},
                   {"memory_bytes", command_.memory_bytes()}});
  }
  return all;
}

}  // namespace stdchk::fork::vm
