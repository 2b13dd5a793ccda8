#include "shims/veloc/client.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "shims/veloc/veloc.h"

namespace stdchk::shims {
namespace {

using namespace std::chrono_literals;
constexpr auto kPatience = 5000ms;
const std::set<std::string> kKnown = {"scratch", "persistent", "mode", "max_versions",
                                      "scratch_versions"};

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char each) {
           return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
                  (each >= '0' && each <= '9') || each == '_' || each == '-' || each == '.';
         });
}

void warn(const std::string& text) {
  std::fprintf(stderr, "libveloc-client (stdchk): %s\n", text.c_str());
}

void warn_about(const Settings& settings) {
  std::string names;
  for (const auto& name : settings.others(kKnown)) names += " " + name;
  if (!names.empty()) warn("these settings have no effect on a pool of stdchk:" + names);
  for (const auto& name : settings.malformed())
    warn(name + " is not a number from 0 on, so its default counts");
}

// Returns the ids of regions that a call selects.
std::vector<int> selected(int mode, const std::vector<int>& ids,
                          const std::map<int, Region>& regions) {
  if (mode == VELOC_CKPT_SOME) return ids;
  std::vector<int> chosen;
  for (const auto& [id, region] : regions) {
    if (mode == VELOC_CKPT_ALL || std::find(ids.begin(), ids.end(), id) == ids.end())
      chosen.push_back(id);
  }
  return chosen;
}

}  // namespace

std::string Client::start(MPI_Comm communicator, const std::string& alone,
                          const std::string& config, std::unique_ptr<Client>* client) {
  Settings settings;
  std::string problem, base;
  if (!settings.read_file(config)) problem = "cannot read the configuration " + config;
  for (const char* key : {"persistent", "scratch"}) {
    const std::string path = settings.text(key, "");
    if (base.empty() && !path.empty() && is_in_pool(path)) base = absolute(path) + "/veloc" + alone;
  }
  if (problem.empty() && base.empty()) {
    problem = "neither `persistent` nor `scratch` of " + config +
              " is a directory in a mounted pool of stdchk. Start a pool by `stdchk up --mount "
              "DIR`, and name a directory there";
  }
  const std::string mode = settings.text("mode", "sync");
  if (problem.empty() && mode != "sync" && mode != "async")
    problem = "`mode` is neither sync nor async: " + mode;
  std::unique_ptr<Client> made(new Client(communicator, base));
  made->versions_max_ =
      std::max(settings.number("max_versions", 0), settings.number("scratch_versions", 0));
  if (made->ranks_.is_first()) warn_about(settings);
  if (!made->ranks_.all(problem.empty())) {
    made->finish();
    return problem.empty() ? "VELOC_Init failed on another rank" : problem;
  }
  *client = std::move(made);
  return "";
}

std::string Client::own_file() const {
  return set_.directory + "/rank." + std::to_string(ranks_.rank());
}

std::string Client::route(const std::string& name, std::string* path) {
  if (phase_ == Phase::kIdle) return "no checkpoint and no restart has begun";
  const std::string last = std::filesystem::path(name).filename();
  *path = set_.directory + "/files." + std::to_string(ranks_.rank()) + "/" +
          (last.empty() ? "file" : last);
  if (phase_ == Phase::kRestart) return is_file(*path) ? "" : last + " is not in the checkpoint";
  routed_.insert(*path);
  return make_folders_above(*path);
}

std::string Client::begin(const std::string& name, int version) {
  if (phase_ != Phase::kIdle) return "another phase has not ended";
  if (!is_name(name) || version < 0)
    return "the name has other characters than A-Z a-z 0-9 _ - . or the version is negative";
  const SetFolder folder = folder_of(name);
  const std::string suffix = std::to_string(version);
  std::string problem;
  if (ranks_.is_first()) {
    problem = folder.create();
    if (problem.empty() && versions_max_ > 0) {
      if (auto refused = folder.set_policy("keep", std::to_string(versions_max_)); !refused.empty())
        warn(refused);
    }
    if (problem.empty()) folder.remove_incomplete();
    std::string directory;
    if (problem.empty()) problem = folder.begin(suffix, &directory);
  }
  last_is_complete_ = false;
  if (!ranks_.all(problem.empty()))
    return problem.empty() ? "the first rank could not begin the checkpoint" : problem;
  set_ = {folder.directory_of(suffix), {}};
  set_.note.id = version;
  set_.note.ranks = ranks_.size();
  set_.note.name = name;
  routed_.clear();
  phase_ = Phase::kCheckpoint;
  return "";
}

std::string Client::write(int mode, const std::vector<int>& ids) {
  if (phase_ != Phase::kCheckpoint) return "no checkpoint has begun";
  if (mode < VELOC_CKPT_ALL || mode > VELOC_CKPT_REST) return "the mode is unknown";
  if (!routed_.insert(own_file()).second)
    return "the regions of this checkpoint are written already";
  std::map<int, Region> chosen;
  for (const int id : selected(mode, ids, regions_)) {
    const auto region = regions_.find(id);
    if (region == regions_.end()) return "the region " + std::to_string(id) + " is not protected";
    chosen.insert(*region);
  }
  return write_regions(own_file(), chosen);
}

std::string Client::end(bool is_valid) {
  if (phase_ != Phase::kCheckpoint) return "no checkpoint has begun";
  phase_ = Phase::kIdle;
  std::string problem = is_valid ? "" : "the program says that its checkpoint is not valid";
  for (const auto& path : routed_) {
    if (problem.empty() && !is_file(path)) problem = "the program has not written " + path;
  }
  const bool is_complete = ranks_.all(problem.empty());
  if (ranks_.is_first()) {
    if (is_complete) problem = write_note(set_.directory, set_.note);
    if (!is_complete || !problem.empty()) remove_set(set_.directory);
  }
  last_is_complete_ = ranks_.all(problem.empty() && is_complete);
  if (last_is_complete_) return "";
  return problem.empty() ? "another rank has no valid checkpoint, so it is dropped" : problem;
}

int Client::newest(const std::string& name, int limit) const {
  if (!is_name(name)) return -1;
  std::set<std::int64_t> refused;
  for (;;) {
    std::int64_t version = -1;
    if (ranks_.is_first()) {
      for (const auto& each : folder_of(name).complete()) {  // the highest one first
        const bool is_wanted =
            (limit <= 0 || each.note.id < limit) && each.note.ranks == ranks_.size();
        if (version < 0 && is_wanted && !refused.contains(each.note.id)) version = each.note.id;
      }
    }
    version = ranks_.of_first(version);
    if (version < 0) return -1;
    if (ranks_.all(await_note(folder_of(name).directory_of(std::to_string(version)), kPatience)
                       .has_value())) {
      return static_cast<int>(version);
    }
    refused.insert(version);
  }
}

std::string Client::begin_restart(const std::string& name, int version) {
  if (phase_ != Phase::kIdle) return "another phase has not ended";
  if (!is_name(name) || version < 0) return "the name or the version is wrong";
  const std::string directory = folder_of(name).directory_of(std::to_string(version));
  const auto note = await_note(directory, kPatience);
  if (!ranks_.all(note && note->ranks == ranks_.size())) {
    return "there is no complete version " + std::to_string(version) + " of " + name +
           " of this number of ranks";
  }
  set_ = {directory, *note};
  phase_ = Phase::kRestart;
  return "";
}

std::string Client::recover(int mode, const std::vector<int>& ids) {
  if (phase_ != Phase::kRestart) return "no restart has begun";
  if (mode < VELOC_RECOVER_ALL || mode > VELOC_RECOVER_REST) return "the mode is unknown";
  return read_regions(own_file(), selected(mode, ids, regions_), regions_);
}

long long Client::recover_size(int id) const {
  std::map<int, RegionPlace> places;
  if (phase_ != Phase::kRestart || !read_places(own_file(), &places).empty() ||
      !places.contains(id))
    return -1;
  return static_cast<long long>(places[id].bytes);
}

std::string Client::end_restart(bool is_valid) {
  if (phase_ != Phase::kRestart) return "no restart has begun";
  phase_ = Phase::kIdle;
  return ranks_.all(is_valid) ? "" : "a rank could not read its checkpoint";
}

std::string Client::cleanup(const std::string& name) {
  if (phase_ != Phase::kIdle) return "a phase has not ended";
  if (!is_name(name)) return "the name is wrong";
  if (ranks_.is_first()) {
    for (const auto& each : folder_of(name).complete()) remove_set(each.directory);
    folder_of(name).remove_incomplete();
  }
  ranks_.barrier();
  return "";
}

}  // namespace stdchk::shims
