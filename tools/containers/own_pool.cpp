#include "tools/containers/own_pool.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/base/exit_status.h"
#include "tools/base/mounts.h"
#include "tools/base/process.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/job.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

constexpr auto kUpMax = std::chrono::minutes(15);
/// The drain has no limit of its own, except before a node is taken away.
constexpr auto kDownMax = std::chrono::hours(24 * 7);
constexpr int kSignalled = 128;

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

/// Runs the command until its end, or until a signal asks this process to end.
Outcome<CommandOutput> run_until_signal(const std::vector<std::string>& command) {
  notice_end_signals();
  const int before = end_signals().count;
  auto done = run_command(command, {}, kDownMax, [before] { return end_signals().count > before; });
  // Standard output has the program's output only.
  if (done) fmt::print(stderr, "{}{}", done->out, done->err);
  return done;
}

bool is_good(const Outcome<CommandOutput>& done) { return done && done->status == kExitGood; }

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
  fmt::print(stderr, "{}", done->err);
  auto record = read_answer(done->out);
  if (!record) return problem(record.error());
  return OwnPool(std::move(*program), std::move(*record));
}

bool OwnPool::take_down(const JobEnd& end) const {
  const bool has_ended_well = end.status == kExitGood, drains = !record_.drain.empty();
  if (!drains && !has_ended_well && end.may_have_set) {
    fmt::print(stderr,
               "stdchk: the pool at {} stays up, because it may have the only copy of the job's "
               "sets\n",
               record_.mount);
    return true;
  }
  const auto now = load(record_.directory);
  if (now && identity_of(*now) != identity_of(record_)) {
    fmt::print(stderr, "stdchk: the pool at {} is no longer the job's, so it stays up\n",
               record_.mount);
    return false;
  }
  // The environment may name another pool, which this option overrides.
  std::vector<std::string> command{program_, "down", "--pool", record_.directory};
  if (drains) command.emplace_back("--drain");
  if (drains && has_ended_well) command.emplace_back("--success");
  const std::vector<std::string> limit{"--timeout", std::to_string(kTermDrainSeconds)};
  const bool is_limited = drains && end.status == kSignalled + SIGTERM;
  if (is_limited) command.insert(command.end(), limit.begin(), limit.end());
  auto done = run_until_signal(command);
  if (!is_good(done) && drains && !is_limited && end_signals().last == SIGTERM) {
    fmt::print(stderr, "stdchk: SIGTERM: the drain of the pool at {} may take {} s more\n",
               record_.mount, kTermDrainSeconds);
    command.insert(command.end(), limit.begin(), limit.end());
    done = run_until_signal(command);
  }
  if (is_good(done)) return true;
  fmt::print(stderr, "stdchk: the pool at {} was not taken down{}\n", record_.mount,
             done ? "" : ": " + done.error().text);
  return false;
}

}  // namespace stdchk::tools
