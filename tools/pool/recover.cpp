// The command recover: restarts a manager that has ended or does not answer.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/running.h"
#include "tools/base/show.h"
#include "tools/pool/commands.h"
#include "tools/pool/members.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

/// A rebuild waits a minute for benefactors; reading their logs takes time, too.
constexpr auto kUsableAgain = 120s;
/// Longer than the back-off of a benefactor.
constexpr auto kBenefactorsBack = 3s;

/// "10.0.0.1:7471" of "tcp:10.0.0.1:7471".
std::string host_and_port(const std::string& address) {
  constexpr std::string_view kKind = "tcp:";
  return address.starts_with(kKind) ? address.substr(kKind.size()) : address;
}

/// Ends a manager that does not answer, because two managers cannot have the same address.
Outcome<std::string> end_old_manager(const PoolRecord& pool, const Member& manager) {
  if (!is_alive(manager)) return std::string("had ended");
  if (connect(pool)) return problem("the manager of the pool at {} answers", pool.mount);
  if (end_process(manager.process, 0s) == End::kStillThere) {
    return problem("the manager with pid {} does not end, not even by SIGKILL",
                   manager.process.pid);
  }
  return std::string("did not answer and was ended");
}

/// Waits for the benefactors: only they know whether a journal has lost its end, and then the
/// manager ends.
Outcome<void> outlive_benefactors(const Member& manager) {
  const auto until = std::chrono::steady_clock::now() + kBenefactorsBack;
  while (std::chrono::steady_clock::now() < until) {
    if (!is_alive(manager)) return problem("the manager ended: {}", last_words(manager.log));
    std::this_thread::sleep_for(100ms);
  }
  return {};
}

struct Recovered {
  std::string old;  ///< the end of the old manager, in words
  bool rebuilt = false;
  pid_t pid = 0;
  std::vector<std::string> warnings;  ///< of the new manager until it served
};

Outcome<Recovered> recover(PoolRecord& pool) {
  const auto manager = std::ranges::find_if(
      pool.members, [](const Member& member) { return member.role == "manager"; });
  if (manager == pool.members.end() || pool.manager_command.empty()) {
    return problem(
        "the manager of the pool at {} was not started on this node; recover it where "
        "it ran",
        pool.mount);
  }
  const bool journal = ::access((pool.directory + "/manager/journal.db").c_str(), F_OK) == 0;
  const bool standby = std::ranges::count(pool.members, "standby", &Member::role) > 0;
  if (standby && !is_alive(*manager) && connect(pool)) {
    return problem("the standby of the pool at {} has taken over and serves", pool.mount);
  }
  if (standby && !journal) {
    return problem(
        "the pool at {} has a standby, which should have taken over; its log has the reason",
        pool.mount);
  }
  auto old = end_old_manager(pool, *manager);
  if (!old) return problem(old.error());
  pool.spare = spare_of(pool);
  Job job;
  job.role = job.name = "manager";
  job.program = pool.manager_command.front();
  job.arguments.assign(pool.manager_command.begin() + 1, pool.manager_command.end());
  job.ready_file = pool.address_file();
  // Benefactors and mounts look for the manager at its old address.
  const std::string old_address = pool.manager_address.substr(0, pool.manager_address.find(','));
  job.change("--listen", host_and_port(old_address));
  if (!journal) job.arguments.emplace_back("--rebuild");
  std::error_code none;
  const auto said = std::filesystem::file_size(manager->log, none);
  const bool mounted = std::ranges::count(pool.members, "mount", &Member::role) > 0;
  pool.keeps_key = mounted;
  if (!mounted && pool.spare != nullptr) job.input = pool.spare->fd();
  auto member = start_local(job, pool.directory);
  if (!member) return problem(member.error());
  *manager = *member;
  if (auto saved = save(pool); !saved) return problem(saved.error());
  if (auto ready = wait_ready(job, *member, kUsableAgain); !ready) return problem(ready.error());
  *manager = *member;
  if (auto saved = save(pool); !saved) return problem(saved.error());
  if (journal) {
    if (auto there = outlive_benefactors(*member); !there) return problem(there.error());
  }
  return Recovered{*old, !journal, member->process.pid, warnings(member->log, none ? 0 : said)};
}

}  // namespace

int run_recover(const RecoverOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  auto done = recover(*pool);
  if (!done) return complain("nothing was recovered: " + done.error().text);
  if (options.json) {
    print({{"pid", done->pid}, {"rebuilt", done->rebuilt}, {"warnings", done->warnings}});
  } else {
    fmt::print("the manager {}; it runs again, {}\n", done->old,
               done->rebuilt ? "rebuilt from the metadata on benefactors" : "from its journal");
    for (const std::string& warning : done->warnings) fmt::print("  {}\n", warning);
  }
  return kExitGood;
}

}  // namespace stdchk::tools
