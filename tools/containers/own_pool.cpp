#include "tools/containers/own_pool.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tools/base/exit_status.h"
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

}  // namespace

Outcome<OwnPool> OwnPool::bring_up(const std::string& up, const std::string& earlier,
                                   const std::string& invoked_as) {
  auto program = find_program("stdchk", invoked_as);
  if (!program) return problem(program.error());
  if (!earlier.empty()) {
    auto record = find_pool(earlier, {});
    if (record && std::ranges::any_of(record->members, is_alive)) {
      return OwnPool(std::move(*program), std::move(*record));
    }
  }
  std::vector<std::string> command{*program, "up", "--json"};
  for (std::string& word : split_words(up)) command.push_back(std::move(word));
  auto done = run_command(command, {}, kUpMax);
  if (!done) return problem("--up: {}", done.error().text);
  if (done->status != kExitGood) return problem("--up: {}", last_sentence(done->err));
  fmt::print(stderr, "{}", done->err);
  const Json told = Json::parse(done->out, nullptr, false);
  const std::string directory = told.is_object() ? told.value("state_directory", "") : "";
  auto record = load(directory);
  if (!record) return problem("--up: {}", record.error().text);
  return OwnPool(std::move(*program), std::move(*record));
}

std::string OwnPool::folder_here(const std::string& folder) const {
  if (folder.empty()) return folder;
  const std::string full = absolute_path(folder);
  if (is_below(full, record_.mount)) return full;
  return record_.mount + "/" + std::filesystem::path(full).filename().string();
}

void OwnPool::take_down(const JobEnd& end) const {
  const bool has_ended_well = end.status == kExitGood;
  if (record_.drain.empty() && !has_ended_well && end.has_set) {
    fmt::print(stderr,
               "stdchk: the pool at {} stays up, because it has the only copy of the job's sets\n",
               record_.mount);
    return;
  }
  std::vector<std::string> command{program_, "down"};
  if (!record_.drain.empty()) {
    command.emplace_back("--drain");
    if (has_ended_well) command.emplace_back("--success");
    if (end.status == kSignalled + SIGTERM) {
      command.insert(command.end(), {"--timeout", std::to_string(kTermDrainSeconds)});
    }
  }
  command.push_back(record_.mount);
  const auto done = run_command(command, {}, kDownMax);
  // Standard output has the program's output only.
  if (done) fmt::print(stderr, "{}{}", done->out, done->err);
  if (done && done->status == kExitGood) return;
  fmt::print(stderr, "stdchk: the pool at {} was not taken down{}\n", record_.mount,
             done ? "" : ": " + done.error().text);
}

}  // namespace stdchk::tools
