#include "fork/ticket/cluster.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "fork/ticket/program.h"

namespace stdchk::fork {
namespace {

/// Starts a step of the job, which runs beside the job's other steps (srun(1)). Its output must not
/// be buffered by lines.
constexpr const char* kSlurmShell =
    "srun --overlap --quiet --unbuffered --nodes=1 --ntasks=1 --cpu-bind=none --nodelist";
constexpr const char* kPbsShell = "pbs_tmrsh";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string own_name() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

Outcome<std::string> text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return problem(fmt::format("{} cannot be read.", path));
  return text.str();
}

Outcome<std::vector<Host>> ask_slurm(const Host& like) {
  const std::string nodes = variable("SLURM_JOB_NODELIST");
  if (nodes.empty()) return problem("This program does not run in a job of Slurm.");
  const auto names = output_of({"scontrol", "show", "hostnames", nodes});
  if (!names) return problem(names.error());
  return hosts_of_slurm(*names, variable("SLURM_JOB_CPUS_PER_NODE"), like);
}

Outcome<std::vector<Host>> ask_pbs(const Host& like) {
  const std::string path = variable("PBS_NODEFILE");
  if (path.empty()) return problem("This program does not run in a job of PBS.");
  const auto text = text_of(path);
  if (!text) return problem(text.error());
  return hosts_of_pbs(*text, like);
}

}  // namespace

Outcome<std::vector<Host>> hosts_of_pbs(std::string_view text, const Host& like) {
  std::vector<Host> hosts;
  std::istringstream in{std::string(text)};
  for (std::string name; in >> name;) {
    const auto found = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const Host& host) { return host.name == name; });
    if (found != hosts.end()) {
      found->slots++;
      continue;
    }
    hosts.push_back(like);
    hosts.back().name = name;
    hosts.back().slots = 1;
  }
  if (hosts.empty()) return problem("PBS_NODEFILE names no host.");
  return hosts;
}

std::vector<Host> with_own_first(std::vector<Host> hosts, const std::string& own_name, Host own) {
  const auto first_part = [](const std::string& name) { return name.substr(0, name.find('.')); };
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) {
    return first_part(host.name) == first_part(own_name);
  });
  if (found != hosts.end()) {
    if (own.slots == 0) own.slots = found->slots;
    hosts.erase(found);
  }
  if (own.slots == 0) own.slots = std::max(1U, std::thread::hardware_concurrency());
  own.name.clear();
  hosts.insert(hosts.begin(), std::move(own));
  return hosts;
}

Outcome<Cluster> cluster_of(const std::string& source, Host own, std::uint64_t clone_bytes,
                            const std::string& shell) {
  const Host like{"", 1, 0};
  Cluster cluster;
  cluster.shell = shell.empty() ? "ssh" : shell;
  if (source.empty()) {
    cluster.hosts = with_own_first({}, own_name(), std::move(own));
    return cluster;
  }
  Outcome<std::vector<Host>> hosts;
  std::string name = own_name();
  if (source == "slurm") {
    hosts = ask_slurm(like);
    if (const std::string node = variable("SLURMD_NODENAME"); !node.empty()) name = node;
    if (shell.empty()) cluster.shell = kSlurmShell;
  } else if (source == "pbs") {
    hosts = ask_pbs(like);
    if (shell.empty()) cluster.shell = kPbsShell;
  } else {
    const auto text = text_of(source);
    if (!text) return problem(text.error());
    hosts = parse_hosts(*text, like);
    // Every host of a list is another host. A list may name this one: its clones get a daemon then.
    name.clear();
  }
  if (!hosts) return problem(source + ": " + hosts.error().text);
  for (Host& host : *hosts) {
    if (host.memory_bytes == 0) host.memory_bytes = host.slots * clone_bytes;
  }
  cluster.hosts = name.empty() ? std::move(*hosts) : with_own_first(*hosts, name, own);
  if (name.empty()) {
    if (own.slots == 0) own.slots = std::max(1U, std::thread::hardware_concurrency());
    own.name.clear();
    cluster.hosts.insert(cluster.hosts.begin(), std::move(own));
  }
  return cluster;
}

}  // namespace stdchk::fork
