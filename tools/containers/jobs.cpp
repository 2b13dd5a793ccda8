#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/base/exit_status.h"
#include "tools/base/show.h"
#include "tools/containers/commands.h"
#include "tools/containers/job_record.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

constexpr auto kStatusMax = std::chrono::seconds(5);

Outcome<Json> ask(const std::string& job, const Json& request, Duration deadline) {
  auto line = ask_job(job, request.dump(), deadline);
  if (!line) return problem("job {}: {}", job, line.error().text);
  Json answer = Json::parse(*line, nullptr, false);
  if (answer.is_discarded() || !answer.is_object()) {
    return problem("job {}: the coordinator's answer cannot be read", job);
  }
  if (answer.contains("error")) {
    return problem("job {}: {}", job, answer["error"].get<std::string>());
  }
  return answer;
}

/// Removes the record of a job that does not run.
int forget(const std::string& job) {
  const auto known = known_jobs();
  if (std::ranges::find(known, job) == known.end()) {
    return complain(fmt::format("no job of yours has the name {}", job));
  }
  if (ask(job, {{"do", "status"}}, kStatusMax)) {
    return complain(fmt::format("job {} runs; it can be forgotten when it has ended", job));
  }
  forget_job(job);
  return kExitGood;
}

}  // namespace

int run_jobs(const JobsOptions& options) {
  if (!options.forget.empty()) return forget(options.forget);
  Json list = Json::array();
  std::vector<std::vector<std::string>> table = {
      {"JOB", "STATE", "SET", "RESTARTS", "NODES", "FOLDER"}};
  for (const std::string& job : known_jobs()) {
    auto answer = ask(job, {{"do", "status"}}, kStatusMax);
    if (!answer) {
      const auto record = load_job(job);
      answer = Json{{"job", job},
                    {"state", "not running"},
                    {"folder", record ? record->from : std::string()},
                    {"nodes", Json::array()}};
    }
    const Json& one = *answer;
    std::string nodes;
    for (const auto& node : one.at("nodes")) {
      if (!nodes.empty()) nodes += ',';
      nodes += fmt::format("{}:{}", node.at("host").get<std::string>(), node.at("boxes").size());
    }
    const auto number = [&](const char* field) {
      return one.contains(field) ? std::to_string(one.at(field).get<std::uint64_t>()) : "";
    };
    table.push_back({job, one.at("state").get<std::string>(), number("set"), number("restarts"),
                     nodes, one.value("folder", "")});
    list.push_back(one);
  }
  if (options.json) {
    print(list);
  } else {
    print_table(table, {});
  }
  return kExitGood;
}

int run_checkpoint(const CheckpointOptions& options) {
  auto answer = ask(options.job, {{"do", "checkpoint"}}, std::chrono::seconds(options.timeout_s));
  if (!answer) return complain(answer.error().text);
  fmt::print("{}.*.T{}\n", options.job, answer->at("set").get<std::uint64_t>());
  return kExitGood;
}

int run_evacuate(const EvacuateOptions& options) {
  const auto jobs = options.job.empty() ? known_jobs() : std::vector<std::string>{options.job};
  bool moved = false;
  for (const std::string& job : jobs) {
    auto status = ask(job, {{"do", "status"}}, kStatusMax);
    if (!status && options.job.empty()) continue;
    if (!status) return complain(status.error().text);
    bool there = false;
    for (const auto& node : status->at("nodes")) {
      there |= node.at("host") == options.node && !node.at("boxes").empty();
    }
    if (!there) continue;
    auto answer = ask(job, {{"do", "evacuate"}, {"node", options.node}},
                      std::chrono::seconds(options.timeout_s));
    if (!answer) return complain(answer.error().text);
    fmt::print("job {}: no container is left on {}\n", job, options.node);
    moved = true;
  }
  if (!moved) return complain(fmt::format("no job of yours runs on {}", options.node));
  return kExitGood;
}

}  // namespace stdchk::tools
