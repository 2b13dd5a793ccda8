#include "tools/containers/box_plan.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/base/units.h"
#include "core/crypto/secret.h"
#include "core/files/pool_files.h"
#include "tools/base/hosts.h"
#include "tools/base/process.h"
#include "tools/containers/job_record.h"
#include "tools/pool/batch_job.h"

extern char** environ;  // environ(7)

namespace stdchk::tools {
namespace {

constexpr std::uint32_t kBoxesOfByte = 250;
constexpr std::size_t kNameBytesMax = 40;

/// Variables that the containers set themselves, or that lead an MPI library to a batch system.
constexpr std::array<std::string_view, 12> kLeftOut{"STDCHK_",   "SLURM_", "PBS_",    "PMI_",
                                                    "PMIX_",     "OMPI_",  "PRTE_",   "HYDRA_",
                                                    "HOSTNAME=", "PWD=",   "OLDPWD=", "TMPDIR="};

constexpr std::array kOwn{
    // MPICH: mpiexec starts the proxies by the agent; libfabric and UCX take TCP.
    "HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=/.stdchk/agent", "HYDRA_HOST_FILE=/.stdchk/hosts",
    "HYDRA_IFACE=eth0", "FI_PROVIDER=tcp", "FI_TCP_IFACE=eth0", "UCX_TLS=tcp,self",
    "UCX_NET_DEVICES=eth0",
    // Open MPI 5.
    "PRTE_MCA_plm_ssh_agent=/.stdchk/agent", "PRTE_MCA_plm_ssh_no_tree_spawn=1",
    "PRTE_MCA_prte_default_hostfile=/.stdchk/hosts", "PRTE_MCA_oob_tcp_if_include=eth0",
    "PRTE_MCA_prte_if_include=eth0", "PRTE_MCA_hwloc_default_binding_policy=none",
    "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    // Open MPI 4.
    "OMPI_MCA_plm_rsh_agent=/.stdchk/agent", "OMPI_MCA_plm_rsh_no_tree_spawn=1",
    "OMPI_MCA_orte_default_hostfile=/.stdchk/hosts", "OMPI_MCA_oob_tcp_if_include=eth0",
    "OMPI_MCA_hwloc_base_binding_policy=none",
    // Both.
    "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=tcp,self", "OMPI_MCA_btl_tcp_if_include=eth0",
    "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};

/// The environment of containers: this process's variables, the bundle's, the MPI settings. The
/// last value of a name counts.
std::vector<std::string> environment(const BaseSystem& base) {
  std::vector<std::string> out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [&](std::string_view prefix) { return text.starts_with(prefix); };
    if (std::ranges::none_of(kLeftOut, begins)) out.emplace_back(text);
  }
  out.insert(out.end(), base.environment.begin(), base.environment.end());
  for (const char* const variable : kOwn) out.emplace_back(variable);
  return out;
}

std::string address_of(std::uint32_t box) {
  return fmt::format("10.9.{}.{}", box / kBoxesOfByte, box % kBoxesOfByte + 1);
}

std::string host_of(const std::string& job, std::uint32_t box) {
  return box == 0 ? job + "-launcher" : fmt::format("{}-r{}", job, box - 1);
}

}  // namespace

std::map<container::BoxId, container::BoxDescription> plan_boxes(const RunOptions& options,
                                                                 const BaseSystem& base) {
  std::map<container::BoxId, container::BoxDescription> boxes;
  std::vector<std::string> hosts;
  std::string host_file;
  for (std::uint32_t box = 0; box <= options.ranks; ++box) {
    hosts.push_back(address_of(box) + " " + host_of(options.name, box));
    if (box > 0) host_file += address_of(box) + "\n";
  }
  std::error_code ignored;
  const std::string directory = std::filesystem::current_path(ignored);
  for (std::uint32_t box = 0; box <= options.ranks; ++box) {
    container::BoxDescription& one = boxes[box];
    one.host_name = host_of(options.name, box);
    one.address = address_of(box);
    one.root = base.root;
    one.directory = directory.empty() ? "/" : directory;
    one.user = ::getuid();
    one.group = ::getgid();
    one.environment = environment(base);
    one.hosts = hosts;
    one.host_file = host_file;
    one.limits = options.limits;
  }
  return boxes;
}

namespace {

/// A Place is where a node's daemon runs.
struct Place {
  std::string name;
  std::string address;             ///< between hosts; empty: all nodes are on this host
  std::vector<std::string> shell;  ///< the command that takes one text for the place's shell
};

/// The IPv4 address of a host's name: VXLAN devices get it.
Outcome<std::string> address_of_host(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found); error != 0) {
    return problem("{} has no IPv4 address: {}", name, ::gai_strerror(error));
  }
  char text[INET_ADDRSTRLEN] = "";
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text);
}

/// The nodes of the batch job. Slurm starts the daemons by srun, PBS by the remote shell: pbsdsh
/// does not pass standard input and output on.
Outcome<std::vector<Place>> places_of_job(const RunOptions& options) {
  const auto job = current_job(split_words(options.hosts.remote_shell));
  if (!job) return problem(job.error());
  std::vector<Place> places;
  for (const std::string& name : job->nodes) {
    auto address = address_of_host(name);
    if (!address) return problem(address.error());
    std::vector<std::string> shell = split(options.hosts.remote_shell, ' ');
    if (job->system == BatchJob::System::kSlurm) {
      shell = {"srun",
               "--overlap",
               "--nodes=1",
               "--ntasks=1",
               "--mpi=none",
               "--nodelist=" + name,
               "--job-name=stdchk-run",
               "sh",
               "-c"};
    } else {
      shell.push_back(name);
    }
    places.push_back({name, std::move(*address), std::move(shell)});
  }
  return places;
}

Outcome<std::vector<Place>> places_of(const RunOptions& options) {
  if (options.hosts.in_job && !options.hosts.file.empty()) {
    return problem("--job and --hosts exclude each other");
  }
  if (options.hosts.in_job) return places_of_job(options);
  std::vector<Place> places;
  if (options.hosts.file.empty()) {
    for (std::uint32_t i = 0; i < options.hosts.nodes; ++i) {
      places.push_back({fmt::format("node{}", i), "", {"sh", "-c"}});
    }
    return places;
  }
  const auto hosts = read_hosts(options.hosts.file, 0, 0);
  if (!hosts) return problem(hosts.error());
  for (const Host& host : *hosts) {
    Place place{host.name, split(host.address, ',').at(0), split(options.hosts.remote_shell, ' ')};
    place.shell.push_back(host.name);
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace

Outcome<std::vector<container::NodeStart>> plan_nodes(const RunOptions& options,
                                                      const std::string& folder,
                                                      const std::string& invoked_as) {
  auto daemon = find_program("stdchk-container", invoked_as);
  if (!daemon) return problem(daemon.error());
  auto init = find_program("stdchk-box-init", invoked_as);
  if (!init) return problem(init.error());
  auto places = places_of(options);
  if (!places) return problem(places.error());
  const std::string state = job_folder(options.name);
  std::vector<container::NodeStart> nodes;
  for (std::size_t i = 0; i < places->size(); ++i) {
    const Place& place = places->at(i);
    container::NodeStart node;
    node.host = place.name;
    node.folder = folder;
    node.log = fmt::format("{}/node-{}.log", state, i);
    node.underlay = place.address;
    // The folder has the daemon's own name: the sweeper of an earlier daemon of the job removes
    // only that daemon's folder.
    const std::string tag = random_hex(3);
    const std::string work = fmt::format("{}/work-{}-{}", state, i, tag);
    const std::vector<std::string> words{*daemon,
                                         "--secret-file",
                                         "/dev/stdin",
                                         "--listen",
                                         place.address.empty() ? "127.0.0.1" : place.address,
                                         "--work",
                                         work,
                                         "--init",
                                         *init,
                                         "--tag",
                                         tag,
                                         "--criu",
                                         options.criu};
    node.command = place.shell;
    node.command.push_back("exec " + shell_words(words));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::string new_job_name() { return "job-" + random_hex(3); }

bool is_job_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && name[0] != '-' &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '-'; });
}

std::uint32_t new_network_number() {
  std::array<std::byte, sizeof(std::uint32_t)> random{};
  fill_random(random);
  return 1 + std::bit_cast<std::uint32_t>(random) % container::kNetworkNumberMax;
}

}  // namespace stdchk::tools
