#include "tools/down.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tools/job.h"
#include "tools/members.h"
#include "tools/mounts.h"
#include "tools/undrained.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kGrace = 10s;  ///< between SIGTERM and SIGKILL
constexpr auto kCardPatience = 10s;
constexpr auto kUnmountPatience = 3s;  ///< for programs that are just about to leave the mount

/// Unmounts `mount` if anything is there: patiently, then lazily, saying so.
void unmount_pool(const std::string& mount, DownReport& report) {
  const MountInfo info = mount_unasked(mount);
  if (info.state == MountState::kNone || !info.type.starts_with("fuse")) return;
  Outcome<void> done;
  const auto until = std::chrono::steady_clock::now() + kUnmountPatience;
  do {
    done = unmount(mount, false);
    if (done || mount_unasked(mount).state == MountState::kNone) return;
    sleep_for(50ms);
  } while (std::chrono::steady_clock::now() < until);
  const std::string users = users_of(mount);
  if (auto lazily = unmount(mount, true); !lazily) {
    report.troubles.push_back(lazily.error().text + "; type: fusermount3 -u -z " + mount);
    return;
  }
  report.notes.push_back(
      fmt::format("{} was in use{} and was unmounted lazily: those programs see errors from now on",
                  mount, users.empty() ? "" : " by " + users));
}

/// Whether the manager has told what the pool has done.
bool ask_for_card(const PoolRecord& pool, DownReport& report) {
  std::error_code code;
  const fs::path own = fs::read_symlink("/proc/self/exe", code);
  if (code) return false;
  // A process of its own can be ended when the manager does not answer.
  const auto done =
      run_command({own, "report", "--at-end", "--pool", pool.directory}, "", kCardPatience);
  if (done && done->status == 0) {
    report.card = done->out;
    return true;
  }
  std::string why = done ? done->err : "the manager did not tell its figures in time";
  while (why.ends_with('\n')) why.pop_back();
  report.notes.push_back("There is no report card: " + why);
  return false;
}

/// What the pool has done, while its manager can still tell, otherwise what is known to be lost
/// with it; added to the file of the record, too.
void take_card(const PoolRecord& pool, DownReport& report) {
  const auto manages = [](const Member& member) {
    return member.role == "manager" && member.host.empty();
  };
  const auto tells = [&](const Member& member) { return manages(member) && is_alive(member); };
  if (pool.manager_address.empty() || std::ranges::none_of(pool.members, manages)) return;
  if (std::ranges::none_of(pool.members, tells) || !ask_for_card(pool, report)) {
    const std::string lost = losses(pool.undrained, pool.drain);
    if (!lost.empty()) report.card = "The pool at " + pool.mount + " lost its manager. " + lost;
  }
  if (pool.report.empty() || report.card.empty()) return;
  std::ofstream file(pool.report, std::ios::app);
  file << report.card << std::flush;
  if (!file) report.notes.push_back(pool.report + " cannot be written: what follows is here only");
}

/// The logs stay when something went wrong; everything else of the directory goes.
void remove_state(const PoolRecord& pool, bool keep_logs, DownReport& report) {
  std::error_code code;
  withdraw(pool.directory, pool.mount);
  if (keep_logs) {
    const fs::path kept =
        fmt::format("{}/crashed-{}-{}", state_base(), std::time(nullptr), ::getpid());
    fs::create_directories(kept, code);
    for (const auto& entry : fs::directory_iterator(pool.directory, code)) {
      if (entry.path().extension() != ".log") continue;
      std::error_code ignored;
      fs::copy_file(entry.path(), kept / entry.path().filename(), ignored);
    }
    report.logs = kept.string();
  }
  fs::remove_all(pool.directory, code);
  if (code) {
    report.troubles.push_back(
        fmt::format("{} cannot be removed: {}", pool.directory, code.message()));
  }
}

}  // namespace

DownReport stop_pool(const PoolRecord& pool) {
  DownReport report;
  Ended ended;
  end_members(pool, "recorder", kGrace, ended);  // what it keeps is brought up to date at the end
  // The mount goes first, while all that it needs to finish is there. A mount process that hangs
  // does not let its mount go before it has ended, so a second try comes after it.
  for (const Member& member : pool.members) {
    if (member.role == "mount" && member.host.empty() && is_alive(member)) {
      ended.unmounted.insert(member.process.pid);
    }
  }
  if (!ended.unmounted.empty()) unmount_pool(pool.mount, report);
  end_members(pool, "mount", kGrace, ended);
  unmount_pool(pool.mount, report);
  take_card(pool, report);  // the mounts have told all that they knew
  end_members(pool, "benefactor", kGrace, ended);
  end_members(pool, "standby", kGrace, ended);
  end_members(pool, "manager", kGrace, ended);
  report.notes.insert(report.notes.end(), ended.crashed.begin(), ended.crashed.end());
  report.troubles.insert(report.troubles.end(), ended.troubles.begin(), ended.troubles.end());
  if (report.troubles.empty()) remove_state(pool, !ended.crashed.empty(), report);
  // Nobody has asked for this folder. One that is not empty is somebody else's.
  if (!pool.job_id.empty() && pool.mount == job_mount(pool.job_id)) ::rmdir(pool.mount.c_str());
  return report;
}

Outcome<std::vector<std::string>> clean_leftovers(const std::string& directory,
                                                  const std::string& mount) {
  std::vector<std::string> cleaned;
  std::error_code code;
  if (fs::exists(fs::symlink_status(directory, code))) {
    auto old = load(directory);
    if (old) {
      const bool lives = std::ranges::any_of(old->members, [](const Member& member) {
        return member.host.empty() && is_alive(member);
      });
      const MountInfo info = mount_at(old->mount);
      if (lives && info.state == MountState::kAlive) {
        return problem(
            "a pool is up at {} already; see: stdchk status {}, or take it down with: "
            "stdchk down {}",
            old->mount, old->mount, old->mount);
      }
      if (lives) {
        return problem(
            "a part of a pool still runs that was mounted at {}; end it with: stdchk "
            "down {}",
            old->mount, old->mount);
      }
      const DownReport report = stop_pool(*old);
      cleaned.push_back(fmt::format("an earlier pool at {} had crashed; its rest was removed{}",
                                    mount,
                                    report.logs.empty() ? "" : ", its logs are in " + report.logs));
      for (const auto& trouble : report.troubles) cleaned.push_back(trouble);
    } else if (fs::is_symlink(fs::symlink_status(directory, code))) {
      fs::remove(directory, code);
    } else if (fs::exists(directory + "/pool.json", code)) {
      return problem(old.error());
    }
  }
  const MountInfo info = mount_at(mount);
  if (info.state == MountState::kDead) {
    if (auto done = unmount(mount, true); !done) return problem(done.error());
    cleaned.push_back(
        fmt::format("{} was a mount whose process had died; it was unmounted", mount));
  } else if (info.state == MountState::kAlive) {
    return problem("{} is in use: {} ({}) is mounted there; choose another --mount", mount,
                   info.source, info.type);
  }
  return cleaned;
}

}  // namespace stdchk::tools
