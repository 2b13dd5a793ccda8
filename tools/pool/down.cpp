#include "tools/pool/down.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "core/files/own_folder.h"
#include "tools/base/mounts.h"
#include "tools/base/restore.h"
#include "tools/base/running.h"
#include "tools/drained/undrained.h"
#include "tools/pool/job.h"
#include "tools/pool/members.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kGrace = 10s;  ///< between SIGTERM and SIGKILL
constexpr auto kCardPatience = 10s;
constexpr auto kEndPatience = 2s;      ///< time for a killed mount daemon to vanish
constexpr auto kUnmountPatience = 3s;  ///< time for programs that are leaving the mount

/// Tells whether this pool's own daemon made the present mount. If the daemon reported no mount
/// number, only a dead mount counts as its own.
bool is_own_mount(const PoolRecord& pool, const MountInfo& info) {
  // the last mount's, because a guard mounts again
  std::uint64_t own = recorded_mount_id(pool.directory);
  bool lives = false;
  for (const Member& member : pool.members) {
    if (member.role != "mount" || !member.host.empty()) continue;
    if (own == 0) own = member.mount_id;
    lives |= is_alive(member);
  }
  if (own != 0 && info.id != 0) return own == info.id;
  return lives || mount_at(pool.mount).state == MountState::kDead;
}

/// Unmounts the pool's mount if it exists: after a wait, then lazily with a note.
void unmount_pool(const PoolRecord& pool, DownReport& report) {
  const std::string& mount = pool.mount;
  const MountInfo info = mount_unasked(mount);
  if (info.state == MountState::kNone || !info.type.starts_with("fuse")) return;
  if (!is_own_mount(pool, info)) {
    report.notes.push_back(fmt::format("{} is the mount of another pool, and stays", mount));
    return;
  }
  Outcome<void> done;
  const auto until = std::chrono::steady_clock::now() + kUnmountPatience;
  do {
    done = unmount(mount, info.id, false);
    if (done || mount_unasked(mount).id != info.id) return;
    sleep_for(50ms);
  } while (std::chrono::steady_clock::now() < until);
  const std::string users = users_of(mount);
  if (auto lazily = unmount(mount, info.id, true); !lazily) {
    report.troubles.push_back(lazily.error().text + "; type: fusermount3 -u -z " + mount);
    return;
  }
  report.notes.push_back(
      fmt::format("{} was in use{} and was unmounted lazily: those programs see errors from now on",
                  mount, users.empty() ? "" : " by " + users));
}

/// Asks the manager for the report card; false: no answer.
bool ask_for_card(const PoolRecord& pool, DownReport& report) {
  std::error_code code;
  const fs::path own = fs::read_symlink("/proc/self/exe", code);
  if (code) return false;
  // A separate process can be ended if the manager does not answer.
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

/// Takes the report card while the manager can answer, otherwise the known losses. Adds it to the
/// record's report file, too.
void take_report_card(const PoolRecord& pool, DownReport& report) {
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
  if (const Status written = append_to_own_file(pool.report, report.card); !written) {
    report.notes.push_back(fmt::format("{} cannot be written ({}): what follows is here only",
                                       pool.report, describe(written.error())));
  }
}

/// Copies the logs to a folder that outlives the state directory.
void save_logs(const PoolRecord& pool, DownReport& report) {
  const fs::path kept =
      fmt::format("{}/crashed-{}-{}", state_base(), std::time(nullptr), ::getpid());
  if (const auto made = OwnFolder::make(kept, kStateRules); !made) {
    report.notes.push_back("the logs cannot be kept: " + made.error().text);
    return;
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(pool.directory, ignored)) {
    if (entry.path().extension() != ".log") continue;
    fs::copy_file(entry.path(), kept / entry.path().filename(), ignored);
  }
  report.logs = kept.string();
}

/// Removes the state directory; keeps the logs if something went wrong.
void remove_state(const PoolRecord& pool, bool keep_logs, DownReport& report) {
  std::error_code code;
  withdraw(pool.directory, pool.mount);
  if (keep_logs) save_logs(pool, report);
  // Removes the record last. A later `down` or `up` needs the record to continue after an
  // interruption.
  for (const auto& entry : fs::directory_iterator(pool.directory, code)) {
    std::error_code ignored;
    if (entry.path().filename() != "pool.json") fs::remove_all(entry.path(), ignored);
  }
  fs::remove_all(pool.directory, code);
  if (code) {
    report.troubles.push_back(
        fmt::format("{} cannot be removed: {}", pool.directory, code.message()));
  }
}

/// Adds processes of the state directory that a killed `stdchk up` could not record.
PoolRecord with_unrecorded_processes(PoolRecord pool) {
  for (Member& found : running_in(pool.directory).members) {
    const auto same = [&](const Member& member) {
      return member.host.empty() && member.process == found.process;
    };
    if (std::ranges::none_of(pool.members, same)) pool.members.push_back(std::move(found));
  }
  return pool;
}

/// Cleans up one earlier pool. A Problem: the pool runs, or is being started.
Outcome<bool> clean_pool(const PoolRecord& old, std::vector<std::string>& cleaned) {
  const PoolRecord all = with_unrecorded_processes(old);
  const bool lives = std::ranges::any_of(
      all.members, [](const Member& member) { return member.host.empty() && is_alive(member); });
  const bool is_starting = old.starter_boot == boot_id() && old.starter != this_process() &&
                           is_alive(old.starter) && !old.ready;
  if (is_starting) {
    return problem("another stdchk up is at work for {}: pid {}, state directory {}, since {}",
                   old.mount, old.starter.pid, old.directory, old.created);
  }
  if (lives && old.ready) {
    const MountInfo info = mount_at(old.mount);
    if (info.state == MountState::kAlive) {
      return problem(
          "a pool is up at {0} already ({1}); see: stdchk status {0}, or take it down with: stdchk "
          "down {0}",
          old.mount, describe(running_in(old.directory)));
    }
    return problem(
        "a part of a pool still runs that was mounted at {0} ({1}); end it with: stdchk down {0}",
        old.mount, describe(running_in(old.directory)));
  }
  const DownReport report = stop_pool(all);
  cleaned.push_back(fmt::format(
      "{}{}",
      old.ready
          ? fmt::format("an earlier pool at {} had crashed; its rest was removed", old.mount)
          : fmt::format("an earlier start of a pool at {} had not ended; its rest was removed",
                        old.mount),
      report.logs.empty() ? "" : ", its logs are in " + report.logs));
  for (const auto& trouble : report.troubles) cleaned.push_back(trouble);
  return true;
}

/// Reads the record that an earlier pool has left in a state directory; nothing: no record.
Outcome<std::optional<PoolRecord>> read_leftover_record(const std::string& directory) {
  std::error_code code;
  const auto kind = fs::symlink_status(directory, code);
  if (!fs::exists(kind)) {
    auto lost = find_running_in(directory);
    return lost;
  }
  auto old = load(directory);
  if (old) return std::move(*old);
  if (fs::exists(fs::symlink_status(directory + "/pool.json", code))) return problem(old.error());
  if (fs::is_symlink(kind)) fs::remove(directory, code);
  return std::nullopt;
}

}  // namespace

DownReport stop_pool(const PoolRecord& recorded) {
  const PoolRecord pool = with_unrecorded_processes(recorded);
  DownReport report;
  Ended ended;
  end_members(pool, "recorder", kGrace, ended);  // the recorder updates its file at the end
  // End the mount first, while the daemons that it needs still run. A hanging mount process
  // releases its mount only at its end, so a second try follows.
  for (const Member& member : pool.members) {
    if (member.role == "mount" && member.host.empty() && is_alive(member)) {
      ended.unmounted.insert(member.process.pid);
    }
  }
  if (!ended.unmounted.empty()) unmount_pool(pool, report);
  end_members(pool, "mount", kGrace, ended);
  unmount_pool(pool, report);
  take_report_card(pool, report);  // the mounts have reported their totals
  end_members(pool, "benefactor", kGrace, ended);
  end_members(pool, "standby", kGrace, ended);
  end_members(pool, "manager", kGrace, ended);
  report.notes.insert(report.notes.end(), ended.crashed.begin(), ended.crashed.end());
  report.troubles.insert(report.troubles.end(), ended.troubles.begin(), ended.troubles.end());
  if (report.troubles.empty()) remove_state(pool, !ended.crashed.empty(), report);
  // stdchk chose this folder, so it removes it. A folder with content belongs to somebody else.
  if (!pool.job_id.empty() && pool.mount == job_mount(pool.job_id)) ::rmdir(pool.mount.c_str());
  return report;
}

void drop_unfinished(const std::string& directory) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename();
    std::error_code ignored;
    if (name.starts_with(".new-")) fs::remove(entry.path(), ignored);
  }
}

Outcome<std::vector<std::string>> clean_leftovers(const std::vector<std::string>& directories,
                                                  const std::string& mount) {
  std::vector<std::string> cleaned;
  for (const std::string& directory : directories) {
    const auto old = read_leftover_record(directory);
    if (!old) return problem(old.error());
    if (!*old) continue;
    if (auto done = clean_pool(**old, cleaned); !done) return problem(done.error());
  }
  // A pool of another session has its state in another runtime folder.
  if (const auto other = find_running(mount); other && other->mount == mount) {
    if (auto done = clean_pool(*other, cleaned); !done) return problem(done.error());
  }
  MountInfo info = mount_at(mount);
  // The mount of a daemon that was just killed survives for some milliseconds.
  const auto until = std::chrono::steady_clock::now() + kEndPatience;
  while (info.state == MountState::kAlive && info.type == "fuse.stdchk" &&
         std::chrono::steady_clock::now() < until) {
    sleep_for(50ms);
    info = mount_at(mount);
  }
  if (info.state == MountState::kDead) {
    if (auto done = unmount(mount, info.id, true); !done) return problem(done.error());
    cleaned.push_back(
        fmt::format("{} was a mount whose process had died; it was unmounted", mount));
  } else if (info.state == MountState::kAlive) {
    return problem("{} is in use: {} ({}) is mounted there; choose another --mount", mount,
                   info.source, info.type);
  }
  return cleaned;
}

}  // namespace stdchk::tools
