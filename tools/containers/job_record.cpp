#include "tools/containers/job_record.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "container/job/control.h"
#include "core/base/json_fields.h"
#include "core/files/own_folder.h"
#include "tools/base/pool_record.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kRecord = "run.json";

constexpr auto kKept = std::chrono::hours(30 * 24);
constexpr auto kAnswerMax = std::chrono::seconds(2);

/// Another user can make the parent /tmp/stdchk-UID first.
constexpr FolderRules kRunsRules{.what = "the folder of jobs", .is_private = false};

Json to_json(const PoolIdentity& pool) {
  return {{"directory", pool.directory},
          {"mount", pool.mount},
          {"created", pool.created},
          {"pid", pool.starter.pid},
          {"start_ticks", pool.starter.start_ticks},
          {"boot_id", pool.starter_boot}};
}

/// Throws, as read_field().
PoolIdentity parse_identity(const Json& json) {
  PoolIdentity pool;
  read_field(json, "directory", pool.directory);
  read_field(json, "mount", pool.mount);
  read_field(json, "created", pool.created);
  read_field(json, "pid", pool.starter.pid);
  read_field(json, "start_ticks", pool.starter.start_ticks);
  read_field(json, "boot_id", pool.starter_boot);
  return pool;
}

std::string runs_folder() { return user_folder() + "/runs"; }

}  // namespace

std::string job_folder(const std::string& job) { return runs_folder() + "/" + job; }
std::string control_path(const std::string& job) { return job_folder(job) + "/control"; }

Outcome<std::string> ask_job(const std::string& job, const std::string& request,
                             Duration deadline) {
  const auto own = OwnFolder::open(job_folder(job), kStateRules);
  if (!own) return problem("{}", own.error().text);
  auto answer = container::ask_control(control_path(job), request, deadline);
  if (!answer) return problem(answer.error());
  return std::move(*answer);
}

std::vector<std::string> known_jobs() {
  std::vector<std::string> names;
  if (!OwnFolder::open(runs_folder(), kRunsRules)) return names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runs_folder(), ignored)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

Outcome<void> save_job(const RunOptions& options, const std::string& folder) {
  auto own = OwnFolder::make(job_folder(options.name), kStateRules);
  if (!own) return problem("{}", own.error().text);
  const Json record{{"pool", options.pool},
                    {"up", options.up},
                    {"own_pool", to_json(options.own_pool)},
                    {"ranks", options.ranks},
                    {"nodes", options.hosts.nodes},
                    {"hosts", options.hosts.file.empty() ? "" : absolute_path(options.hosts.file)},
                    {"rsh", options.hosts.remote_shell},
                    {"in_job", options.hosts.in_job},
                    {"spares", options.hosts.spares},
                    {"retries", options.retries},
                    {"every", options.pace.every},
                    {"mtbf", options.pace.mtbf},
                    {"policy", options.policy},
                    {"lazy", options.lazy},
                    {"root", options.root},
                    {"criu", options.criu},
                    {"lease_s", options.lease_s},
                    {"program", options.program},
                    {"folder", folder}};
  if (const Status done = own->write_at_once(kRecord, record.dump(1) + "\n"); !done) {
    return failed("the record of the job in " + own->path(), done.error());
  }
  return {};
}

Outcome<RunOptions> load_job(const std::string& job) {
  auto own = OwnFolder::open(job_folder(job), kStateRules);
  if (!own) return problem("{}", own.error().text);
  auto text = own->read(kRecord, kRecordBytesMax);
  if (!text) return failed("the record of job " + job, text.error());
  RunOptions options;
  options.name = job;
  const auto read = read_json([&] {
    const Json record = Json::parse(*text);
    read_field(record, "ranks", options.ranks);
    read_field(record, "nodes", options.hosts.nodes);
    read_field(record, "hosts", options.hosts.file);
    read_field(record, "rsh", options.hosts.remote_shell);
    read_field(record, "spares", options.hosts.spares);
    read_field(record, "retries", options.retries);
    read_field(record, "every", options.pace.every);
    options.up = record.value("up", "");
    if (options.up.empty()) read_field(record, "pool", options.pool);
    if (record.contains("own_pool")) options.own_pool = parse_identity(record.at("own_pool"));
    options.pace.mtbf = record.value("mtbf", "");
    options.policy = record.value("policy", "");
    options.lazy = record.value("lazy", false);
    options.hosts.in_job = record.value("in_job", false);
    read_field(record, "root", options.root);
    read_field(record, "criu", options.criu);
    read_field(record, "lease_s", options.lease_s);
    read_field(record, "program", options.program);
    read_field(record, "folder", options.from);
    return true;
  });
  if (!read) return problem("the record of job {} cannot be read: {}", job, read.error().text);
  return options;
}

void forget_job(const std::string& job) {
  // After this check no other user can put another folder in its place.
  if (!OwnFolder::open(job_folder(job), kStateRules)) return;
  std::error_code ignored;
  fs::remove_all(job_folder(job), ignored);
}

void forget_old_jobs() {
  for (const std::string& job : known_jobs()) {
    std::error_code error;
    const auto written = fs::last_write_time(job_folder(job) + "/" + kRecord, error);
    if (error || fs::file_time_type::clock::now() - written < kKept) continue;
    const std::string request = Json{{"do", "status"}}.dump();
    if (!ask_job(job, request, kAnswerMax)) forget_job(job);
  }
}

bool find_job(const std::string& name, RunOptions& options) {
  if (name.empty() || name.find('/') != std::string::npos || fs::exists(name)) return false;
  const auto known = known_jobs();
  if (std::ranges::find(known, name) == known.end()) return false;
  auto loaded = load_job(name);
  if (!loaded) return false;
  options = std::move(*loaded);
  return true;
}

}  // namespace stdchk::tools
