#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "container/program/program.h"

/// Descriptions of containers, networks and checkpoints, as JSON. container/README.md has the
/// format. Texts come from the wire and from the pool, so that parse functions accept any bytes.
namespace stdchk::container {

/// BoxLimits are limits of a container's use of its host; 0: no limit.
struct BoxLimits {
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_percent = 0;  ///< 100: one processor
  std::uint32_t processes = 0;
  bool operator==(const BoxLimits&) const = default;
};

/// A BoxDescription describes a container. Box 0 holds the launcher, each other box a rank.
struct BoxDescription {
  std::string host_name;  ///< letters, digits and "-"
  std::string address;    ///< IPv4 of its network, without a prefix
  std::string root;       ///< absolute path of the base file system; the same on all nodes
  std::string directory;  ///< where commands run
  std::uint32_t user = 0;
  std::uint32_t group = 0;
  std::vector<std::string> environment;
  std::vector<std::string> hosts;  ///< "ADDRESS NAME" of all containers
  std::string host_file;           ///< of the MPI launchers: a line for each rank
  BoxLimits limits;
  bool operator==(const BoxDescription&) const = default;
};

inline constexpr std::uint32_t kNetworkNumberMax = (1U << 24) - 1;

/// A NetworkDescription says how the containers of a job reach each other.
struct NetworkDescription {
  std::uint32_t number = 0;        ///< of the job's network: VXLAN id, 24 bits
  std::uint32_t prefix_bits = 16;  ///< of the containers' addresses
  std::string underlay;            ///< the node's own address; empty: one host
  std::vector<std::string> peers;  ///< addresses of the other hosts of the job
  std::string folder;              ///< of the job's sets, in the pool's mount on that node
  std::string application;         ///< A of the set's names A.Ni.Tj
  bool lazy = false;               ///< containers that are loaded get their memory on demand
  bool operator==(const NetworkDescription&) const = default;
};

/// A SetDescription describes a job at a checkpoint, and is the last member of its set. It holds
/// everything that a restart needs besides the images.
struct SetDescription {
  std::string job;
  std::uint64_t set = 0;
  std::string created;  ///< for people
  std::vector<std::string> program;
  std::map<std::uint32_t, BoxDescription> boxes;
  /// Commands that containers run for agents: (container, number) of each NAME of container 0's.
  std::map<std::string, std::pair<std::uint32_t, std::uint64_t>> asks;
  std::map<std::uint32_t, std::uint64_t> commands;  ///< how many each container was given
  std::map<std::uint32_t, std::uint64_t> image_bytes;
  std::uint64_t output_bytes = 0;  ///< of container 0 that were shown when the set was saved
  std::uint64_t error_bytes = 0;
  bool operator==(const SetDescription&) const = default;
};

std::string text_of(const BoxDescription& box);
std::string text_of(const NetworkDescription& network);
std::string text_of(const SetDescription& set);

/// The error names the field that is missing or not valid.
Outcome<BoxDescription> parse_box(const std::string& text);
Outcome<NetworkDescription> parse_network(const std::string& text);
Outcome<SetDescription> parse_set(const std::string& text);

/// The names of a set's members, as the pool knows them (core/policy/image_name.h). The description
/// is A.N0.Tj, container 0 is A.N1.Tj, and so on.
std::string image_name(const std::string& application, std::uint32_t box, std::uint64_t set);
std::string description_name(const std::string& application, std::uint64_t set);
/// The number Tj of a description's name of that application; 0: another name.
std::uint64_t set_of_name(const std::string& application, const std::string& name);

}  // namespace stdchk::container
