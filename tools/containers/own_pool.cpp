#include "tools/containers/own_pool.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/base/exit_status.h"
#include "tools/base/mounts.h"
#include "tools/base/process.h"
#include "tools/base/running.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/job.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

constexpr auto kUpMax = std::chrono::minutes(15);
/// The drain has no limit of its own, except before a node is taken away.
constexpr auto kDownMax = std::chrono::hours(24 * 7);
constexpr auto kEndMax = std::chrono::minutes(15);

/// The last sentence of what a `stdchk` has said on standard error.
std::string last_sentence(std::string text) {
  constexpr std::string_view kName = "stdchk: ";
  while (text.ends_with('\n')) text.pop_back();
  const std::string line = text.substr(text.rfind('\n') + 1);
  return line.starts_with(kName) ? line.substr(kName.size()) : line;
}

bool runs_here(const Member& member) { return member.host.empty() && is_alive(member); }

/// The part without which no set can be read: "mount" or "manager"; empty: both work. Managers on
/// other hosts are taken for working.
std::string lost_part(const PoolRecord& pool) {
  if (mount_at(pool.mount).state != MountState::kAlive) return "mount";
  const auto manages = [](const Member& member) {
    return member.role == "manager" || member.role == "standby";
  };
  const auto works = [](const Member& member) { return !member.host.empty() || is_alive(member); };
  std::vector<Member> managers;
  std::ranges::copy_if(pool.members, std::back_inserter(managers), manages);
  return managers.empty() || std::ranges::any_of(managers, works) ? "" : "manager";
}

/// Finds the pool that an earlier run of the job has left. Nothing: no part of that pool runs.
Outcome<std::optional<PoolRecord>> find_earlier(const PoolIdentity& earlier) {
  if (earlier.directory.empty()) return std::nullopt;
  auto record = find_pool(earlier.directory, {});
  if (!record || identity_of(*record) != earlier) return std::nullopt;
  if (std::ranges::none_of(record->members, runs_here)) return std::nullopt;
  if (const std::string lost = lost_part(*record); !lost.empty()) {
    return problem(
        "the job's pool at {0} is up and has lost its {1}; it may have the only copy of the job's "
        "sets. See: stdchk status --pool {2}; take it down with: stdchk down --pool {2}",
        record->mount, lost, record->directory);
  }
  return std::optional(std::move(*record));
}

/// Reads the answer of `stdchk up --json`.
Outcome<PoolRecord> read_answer(const std::string& answer) {
  const Json told = Json::parse(answer, nullptr, false);
  if (!told.is_object()) return problem("--up: stdchk up does not describe its pool");
  const std::string directory = told.value("state_directory", ""), mount = told.value("mount", "");
  if (directory.empty()) {
    return problem(
        "--up: the pool at {0} is up and stays up, and this host is none of its nodes. Run stdchk "
        "run on a node of the batch job; there stdchk down {0} takes the pool down",
        mount);
  }
  auto record = load(directory);
  if (record) return record;
  return problem("--up: the pool at {} is up and stays up: {}", mount, record.error().text);
}

void show(const std::string& text) { (void)std::fputs(text.c_str(), stderr); }

/// Runs a command of the pool's end, and shows its output. Standard output has the program's output
/// only. False: the command has failed, or `enough` has ended it.
bool run_shown(const std::vector<std::string>& command, Duration longest,
               const std::function<bool()>& enough = {}) {
  const auto done = run_command(command, {}, longest, enough);
  show(done ? done->out + done->err : "");
  return done && done->status == kExitGood;
}

/// Whether no part of the pool runs on this host, and its record is gone.
bool is_gone(const PoolRecord& pool) {
  return !load(pool.directory) && running_in(pool.directory).members.empty();
}

}  // namespace

Outcome<OwnPool> OwnPool::bring_up(const std::string& up, const PoolIdentity& earlier,
                                   const std::string& invoked_as) {
  const std::vector<std::string> words = split_words(up);
  if (auto fits = check_up_words(words); !fits) return problem(fits.error());
  auto program = find_program("stdchk", invoked_as);
  if (!program) return problem(program.error());
  auto left = find_earlier(earlier);
  if (!left) return problem(left.error());
  if (*left) return OwnPool(std::move(*program), std::move(**left));
  std::vector<std::string> command{*program, "up", "--json"};
  command.insert(command.end(), words.begin(), words.end());
  auto done = run_command(command, {}, kUpMax);
  if (!done) return problem("--up: {}", done.error().text);
  if (done->status != kExitGood) return problem("--up: {}", last_sentence(done->err));
  show(done->err);
  auto record = read_answer(done->out);
  if (!record) return problem(record.error());
  return OwnPool(std::move(*program), std::move(*record));
}

bool OwnPool::take_down(const JobEnd& end) const {
  const bool has_ended_well = end.status == kExitGood, drains = !record_.drain.empty();
  if (!drains && !has_ended_well && end.may_have_set) {
    tell(fmt::format("the pool at {} stays up, because it may have the only copy of the job's sets",
                     record_.mount));
    return true;
  }
  if (const auto now = load(record_.directory); now && identity_of(*now) != identity_of(record_)) {
    tell(fmt::format("the pool at {} is no longer the job's, so it stays up", record_.mount));
    return false;
  }
  if (drains && drain_and_end(has_ended_well)) return true;
  if (drains && end_signals().count() > 0) {
    tell(fmt::format(
        "the pool at {} goes down after a signal; what it has not drained is lost with it",
        record_.mount));
  }
  // A drain that fails by itself leaves the pool to its user. A signal takes the pool down.
  const bool ends = !drains || end_signals().count() > 0;
  if (ends && end_now()) return !drains;
  tell(fmt::format("the pool at {} was not taken down", record_.mount));
  return false;
}

/// Drains the pool and takes it down. The first signal leaves the drain kTermDrainSeconds; SIGTERM
/// and SIGHUP do so before the drain, too. Then SIGTERM or Ctrl-C ends the drain. False: the drain
/// was ended, or has failed, or the pool was not taken down.
bool OwnPool::drain_and_end(bool has_ended_well) const {
  // The environment may name another pool, which this option overrides.
  std::vector<std::string> command{program_, "down", "--pool", record_.directory, "--drain"};
  if (has_ended_well) command.emplace_back("--success");
  const EndSignals before = end_signals();
  if (before.terms + before.hangups == 0) {
    const auto came = [before] { return end_signals().count() > before.count(); };
    if (run_shown(command, kDownMax, came) || is_gone(record_)) return true;
    if (!came()) return false;
    tell(
        fmt::format("a signal: the drain of the pool at {} may take {} s more; SIGTERM or Ctrl-C "
                    "ends it at once",
                    record_.mount, kTermDrainSeconds));
  }
  command.insert(command.end(), {"--timeout", std::to_string(kTermDrainSeconds)});
  // A lost terminal may send several SIGHUPs, which change nothing here.
  const EndSignals now = end_signals();
  return run_shown(command, kDownMax, [now] {
    const EndSignals more = end_signals();
    return more.terms > now.terms || more.interrupts > now.interrupts;
  });
}

/// Takes the pool down without a drain. Signals change nothing: half a pool would stay.
bool OwnPool::end_now() const {
  return run_shown({program_, "down", "--pool", record_.directory}, kEndMax) || is_gone(record_);
}

}  // namespace stdchk::tools
