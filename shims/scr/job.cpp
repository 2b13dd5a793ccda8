#include "shims/scr/job.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "shims/scr/scr.h"

namespace stdchk::shims {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 5000ms;

// Keys that have an effect, then keys whose wish a pool fulfils in any case.
const std::set<std::string> kKnown = {"SCR_PREFIX",
                                      "SCR_CACHE_BASE",
                                      "SCR_CACHE_SIZE",
                                      "SCR_FLUSH",
                                      "SCR_COPY_TYPE",
                                      "SCR_CURRENT",
                                      "SCR_JOB_NAME",
                                      "SCR_CONF_FILE",
                                      "SCR_ENABLE",
                                      "SCR_HALT_SECONDS",
                                      "SCR_END_TIME",
                                      "SCR_CHECKPOINT_INTERVAL",
                                      "SCR_DEBUG",
                                      "SCR_HALT_ENABLED",
                                      "SCR_CHECKPOINT_SECONDS",
                                      "SCR_CHECKPOINT_OVERHEAD",
                                      "SCR_CACHE_BYPASS",
                                      "SCR_FLUSH_ASYNC",
                                      "SCR_FETCH",
                                      "SCR_DISTRIBUTE"};

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void warn(const std::string& text) { std::fprintf(stderr, "libscr (stdchk): %s\n", text.c_str()); }

void warn_about(const Settings& settings) {
  std::string names;
  for (const auto& name : settings.others(kKnown)) names += " " + name;
  if (!names.empty()) warn("these settings have no effect on a pool of stdchk:" + names);
  for (const auto& name : settings.malformed()) {
    warn(name + " is not a number from 0 on, so its default counts");
  }
}

// Returns the folder in the pool that holds the sets of this program, or an empty text.
std::string base_in_pool(const Settings& settings, const std::string& prefix) {
  if (is_in_pool(prefix)) return prefix + "/scr";
  const std::string cache = settings.text("SCR_CACHE_BASE", "");
  if (cache.empty() || !is_in_pool(cache)) return "";
  const char* user = std::getenv("USER");
  return absolute(cache) + "/" + (user != nullptr ? user : "user") + "/scr." +
         settings.text("SCR_JOB_NAME", "job");
}

// Makes a file name of a dataset's name.
std::string as_file_name(std::string name) {
  name.resize(std::min<std::size_t>(name.size(), 100));
  for (char& each : name) {
    const bool is_plain = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                          (each >= '0' && each <= '9') || each == '-' || each == '.';
    if (!is_plain) each = '_';
  }
  return name;
}

}  // namespace

Job::Job(Settings& settings, const std::string& prefix, const std::string& base)
    : settings_(settings),
      ranks_(MPI_COMM_WORLD),
      prefix_(prefix),
      checkpoints_(base + "/checkpoints", "set."),
      outputs_(base + "/output", "set."),
      pace_(settings, now()),
      current_(settings.text("SCR_CURRENT", "")),
      ends_program_(false) {}

std::string Job::start(Settings& settings, std::unique_ptr<Job>* job) {
  settings.take_environment("SCR_");
  std::error_code ignored;
  const std::string here = std::filesystem::current_path(ignored);
  settings.read_file(
      settings.text("SCR_CONF_FILE", absolute(settings.text("SCR_PREFIX", here)) + "/.scrconf"));
  const std::string prefix = absolute(settings.text("SCR_PREFIX", here));
  const std::string base = base_in_pool(settings, prefix);
  std::unique_ptr<Job> made(new Job(settings, prefix, base));
  const Ranks& ranks = made->ranks_;
  std::string problem;
  if (settings.number("SCR_ENABLE", 1) == 0) {
    problem = "SCR_ENABLE is 0";
  } else if (base.empty()) {
    problem = "neither SCR_PREFIX (" + prefix + ") nor SCR_CACHE_BASE (" +
              settings.text("SCR_CACHE_BASE", "not set") +
              ") is a directory in a mounted pool of stdchk. Start a pool by `stdchk up --mount "
              "DIR`, and set SCR_PREFIX";
  }
  const bool is_good = ranks.all(problem.empty());
  if (is_good && ranks.is_first()) problem = made->create_folders();
  if (ranks.is_first()) warn_about(settings);
  if (!ranks.all(problem.empty())) {
    made->finish();
    return problem.empty() ? "SCR_Init failed on another rank" : problem;
  }
  *job = std::move(made);
  return "";
}

std::string Job::create_folders() {
  for (const SetFolder* folder : {&checkpoints_, &outputs_}) {
    if (auto problem = folder->create(); !problem.empty()) return problem;
    folder->remove_incomplete();
  }
  std::vector<std::pair<std::string, std::string>> policies;
  if (settings_.find("SCR_CACHE_SIZE")) {
    policies.emplace_back(
        "keep", std::to_string(std::max<std::int64_t>(settings_.number("SCR_CACHE_SIZE", 1), 1)));
  }
  if (settings_.find("SCR_FLUSH")) {
    // 0 means never: the policy has no such value. The newest set is drained at the pool's end in
    // any case.
    const std::int64_t every = settings_.number("SCR_FLUSH", 1);
    policies.emplace_back("drain-every", std::to_string(every == 0 ? 1000000 : every));
  }
  if (const auto type = settings_.find("SCR_COPY_TYPE")) {
    if (*type == "SINGLE") policies.emplace_back("copies", "1");
    if (*type == "PARTNER") policies.emplace_back("copies", "2");
  }
  for (const auto& [key, value] : policies) {
    if (auto problem = checkpoints_.set_policy(key, value); !problem.empty()) warn(problem);
  }
  return "";
}

void Job::finish() { ranks_.release(); }

std::vector<NotedSet> Job::sets() const {
  std::vector<NotedSet> all = checkpoints_.complete();
  const std::vector<NotedSet> outputs = outputs_.complete();
  all.insert(all.end(), outputs.begin(), outputs.end());
  std::sort(all.begin(), all.end(),
            [](const NotedSet& a, const NotedSet& b) { return a.note.id > b.note.id; });
  return all;
}

std::optional<std::string> Job::below_prefix(const std::string& name) const {
  const std::string full = absolute(name);
  if (full.starts_with(prefix_ + "/")) return full.substr(prefix_.size() + 1);
  // A relative path means the program's directory, which may not be the prefix.
  if (name[0] != '/') {
    const std::string other = absolute(prefix_ + "/" + name);
    if (other.starts_with(prefix_ + "/")) return other.substr(prefix_.size() + 1);
  }
  return std::nullopt;
}

std::string Job::route(const std::string& name, std::string* path) {
  if (phase_ == Phase::kIdle) {
    *path = name;
    return "";
  }
  if (name.empty()) return "the file has no name";
  const auto part = below_prefix(name);
  if (!part) return name + " is not below SCR_PREFIX (" + prefix_ + ")";
  *path = set_.directory + "/" + *part;
  if (phase_ == Phase::kOutput) {
    routed_.insert(*path);
    return make_folders_above(*path);
  }
  if (is_file(*path)) return "";
  // Programs may give the last part of the name only.
  std::error_code error;
  const auto last = std::filesystem::path(name).filename();
  for (std::filesystem::recursive_directory_iterator each(set_.directory, error), end;
       !error && each != end; each.increment(error)) {
    if (each->path().filename() == last && is_file(each->path())) {
      *path = each->path();
      return "";
    }
  }
  return name + " is not in the checkpoint " + set_.note.name;
}

std::string Job::start_output(const std::string& name, int flags) {
  if (phase_ != Phase::kIdle) return "another phase has not ended";
  if (name.size() >= SCR_MAX_FILENAME || name.find('\n') != std::string::npos) {
    return "the dataset's name is too long, or has a newline";
  }
  std::string problem;
  set_ = {};
  set_.note.flags = flags;
  set_.note.ranks = ranks_.size();
  if (ranks_.is_first()) {
    const auto known = sets();
    set_.note.id = known.empty() ? 1 : known.front().note.id + 1;
  }
  set_.note.id = ranks_.of_first(set_.note.id);
  set_.note.name = name.empty() ? "scr.dataset." + std::to_string(set_.note.id) : name;
  const std::string suffix = std::to_string(set_.note.id) + "." + as_file_name(set_.note.name);
  const SetFolder& folder = (flags & SCR_FLAG_OUTPUT) != 0 ? outputs_ : checkpoints_;
  set_.directory = folder.directory_of(suffix);
  if (ranks_.is_first()) problem = folder.begin(suffix, &set_.directory);
  if (!ranks_.all(problem.empty()))
    return problem.empty() ? "the first rank could not begin the dataset" : problem;
  routed_.clear();
  phase_ = Phase::kOutput;
  pace_.checkpoint_started(now());
  return "";
}

std::string Job::complete_output(bool is_valid) {
  if (phase_ != Phase::kOutput) return "no output has begun";
  phase_ = Phase::kIdle;
  std::string problem = is_valid ? "" : "the program says that its files are not valid";
  for (const auto& path : routed_) {
    if (problem.empty() && !is_file(path)) problem = "the program has not written " + path;
  }
  const bool is_complete = ranks_.all(problem.empty());
  if (ranks_.is_first()) {
    if (is_complete) problem = write_note(set_.directory, set_.note);
    if (!problem.empty() || !is_complete) remove_set(set_.directory);
  }
  pace_.checkpoint_ended(now());
  if (!ranks_.all(problem.empty() && is_complete)) {
    return problem.empty() ? "another rank has no valid files, so the dataset is dropped" : problem;
  }
  const bool halts = should_exit();
  ends_program_ = halts && settings_.number("SCR_HALT_ENABLED", 1) != 0;
  return "";
}

bool Job::needs_checkpoint() {
  const bool halts = should_exit();
  return ranks_.of_first(std::int64_t{pace_.needs_checkpoint(now()) || halts}) != 0;
}

bool Job::should_exit() {
  const bool mine =
      ranks_.is_first() && (pace_.time_is_up(now()) || is_file(checkpoints_.path() + "/halt"));
  return ranks_.of_first(std::int64_t{mine}) != 0;
}

std::optional<NotedSet> Job::newest() const {
  bool was_current_seen = current_.empty();
  for (const auto& each : sets()) {
    if (!was_current_seen) was_current_seen = each.note.name == current_;
    const bool is_checkpoint = (each.note.flags & SCR_FLAG_CHECKPOINT) != 0;
    if (was_current_seen && is_checkpoint && !each.note.is_dropped &&
        !refused_.contains(each.directory))
      return each;
  }
  return std::nullopt;
}

std::optional<std::string> Job::restart_name() {
  if (phase_ != Phase::kIdle) return std::nullopt;
  for (;;) {
    const auto mine = ranks_.is_first() ? newest() : std::nullopt;
    const std::string directory = ranks_.of_first(mine ? mine->directory : std::string());
    if (directory.empty()) return std::nullopt;
    const auto note = await_note(directory, kPatience);
    if (ranks_.all(note.has_value())) {
      set_ = {directory, *note};
      return note->name;
    }
    refused_.insert(directory);
  }
}

std::string Job::start_restart() {
  if (!restart_name()) return "there is no checkpoint";
  phase_ = Phase::kRestart;
  return "";
}

std::string Job::complete_restart(bool is_valid) {
  if (phase_ != Phase::kRestart) return "no restart has begun";
  phase_ = Phase::kIdle;
  if (ranks_.all(is_valid)) return "";
  refused_.insert(set_.directory);
  return "a rank could not read the checkpoint " + set_.note.name + ", so an older one is next";
}

std::string Job::remove(const std::string& name, bool keeps_files) {
  std::string problem;
  if (ranks_.is_first()) {
    problem = "there is no dataset " + name;
    for (auto& each : sets()) {
      if (each.note.name != name) continue;
      problem.clear();
      if (keeps_files) {
        each.note.is_dropped = true;
        problem = write_note(each.directory, each.note);
      } else {
        remove_set(each.directory);
      }
    }
  }
  return ranks_.all(problem.empty()) ? "" : problem.empty() ? "the first rank failed" : problem;
}

}  // namespace stdchk::shims
