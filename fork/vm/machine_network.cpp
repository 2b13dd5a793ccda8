#include "fork/vm/machine_network.h"

#include <fmt/core.h>

#include <utility>

namespace stdchk::fork::vm {
namespace {

/// Another process may take the same index at the same time.
constexpr int kTriesMax = 4;

}  // namespace

std::string hardware_address_in(std::uint32_t base, std::uint32_t part) {
  return fmt::format("02:5f:01:{:02x}:{:02x}:{:02x}", (base >> 16) & 255, (base >> 8) & 255, part);
}

Outcome<std::unique_ptr<MachineNetwork>> MachineNetwork::make(const Subnet& subnet) {
  std::string why = "all networks of --network are in use";
  int tries = 0;
  for (std::uint32_t index = 0; index < subnet.families && tries < kTriesMax; index++) {
    if (FamilyNetwork::is_taken(index)) continue;
    auto network = std::make_unique<FamilyNetwork>(subnet, index, FamilyNetwork::Reach::kFamily);
    const auto started = network->start();
    if (started) return std::unique_ptr<MachineNetwork>(new MachineNetwork(std::move(network)));
    why = started.error().text;
    tries++;
  }
  return problem(fmt::format("The machines have no network: {}", why));
}

MachineNetwork::Part MachineNetwork::take() {
  const std::uint32_t part = network_->take();
  if (part == 0) return nullptr;
  return {new std::uint32_t(part), [this](const std::uint32_t* taken) {
            network_->give_back(*taken);
            delete taken;
          }};
}

Outcome<MachineNetwork::Socket> MachineNetwork::add_socket(std::uint32_t part) {
  Socket socket;
  socket.port.name = fmt::format("m{}", ++sockets_made_);
  socket.port.hardware_address = hardware_address_in(network_->base(), part);
  auto tap = network_->add_tap(socket.port.name);
  if (!tap) return problem(tap.error());
  socket.tap = std::move(*tap);
  socket.port.tap = socket.tap.get();
  return socket;
}

Outcome<void> MachineNetwork::direct(const std::vector<Port>& ports) {
  std::vector<FamilyNetwork::Direction> directions;
  directions.reserve(ports.size());
  for (const Port& port : ports) directions.push_back({port.hardware_address, port.name});
  return network_->direct(directions);
}

std::string MachineNetwork::address(std::uint32_t part) const {
  return address_text(network_->address(part).ip);
}

std::string MachineNetwork::addresses(std::uint32_t part) const {
  return fmt::format("{} {}/24", hardware_address_in(network_->base(), part), address(part));
}

}  // namespace stdchk::fork::vm
