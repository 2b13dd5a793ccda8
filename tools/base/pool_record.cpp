#include "tools/base/pool_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/json_fields.h"
#include "core/files/mount_table.h"
#include "core/objects/object_place.h"
#include "tools/base/restore.h"
#include "tools/base/running.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kSecretBytesMax = 4096;

/// Removes ".", ".." and trailing slashes from a path.
std::string absolute_text(const std::string& path) {
  const fs::path full = fs::path(path).lexically_normal();
  return full.has_filename() ? full.string() : full.parent_path().string();
}

Json to_json(const PoolRecord& record) {
  Json members = Json::array();
  for (const auto& member : record.members) {
    members.push_back({{"role", member.role},
                       {"host", member.host},
                       {"pid", member.process.pid},
                       {"start_ticks", member.process.start_ticks},
                       {"boot_id", member.boot_id},
                       {"log", member.log},
                       {"mount", member.mount},
                       {"mount_id", member.mount_id},
                       {"directory", member.directory},
                       {"metrics", member.metrics}});
  }
  Json places = Json::array();
  for (const auto& place : record.host_folders) {
    places.push_back({{"host", place.host}, {"directory", place.directory}});
  }
  return {{"format", kFormat},
          {"mount", record.mount},
          {"drain", record.drain},
          {"created", record.created},
          {"manager_address", record.manager_address},
          {"manager_command", record.manager_command},
          {"remote_shell", record.remote_shell},
          {"transport", record.transport},
          {"trusted_network", record.trusted_network},
          {"job_id", record.job_id},
          {"report", record.report},
          {"undrained", record.undrained},
          {"secret_file", record.secret_file()},
          {"ready", record.ready},
          {"starter",
           {{"pid", record.starter.pid},
            {"start_ticks", record.starter.start_ticks},
            {"boot_id", record.starter_boot}}},
          {"host_folders", places},
          {"members", members}};
}

/// Reads a process number; -1: impossible number.
pid_t pid_of(const Json& json) {
  constexpr std::int64_t kPidMax = 1 << 22;  // PID_MAX_LIMIT of Linux
  const auto number = integer_of<std::int64_t>(json);
  return number >= 0 && number <= kPidMax ? static_cast<pid_t>(number) : -1;
}

bool is_whole_path(const std::string& path) {
  return path.starts_with('/') && path.find('\0') == std::string::npos &&
         absolute_text(path) == path;
}

/// Whether the text is safe as a word of a remote shell's command line: no option, nothing
/// invisible.
bool is_host(const std::string& host) {
  return !host.empty() && host[0] != '-' &&
         std::ranges::all_of(host, [](unsigned char c) { return c > ' ' && c != 0x7f; });
}

/// Refuses a record that `stdchk up` never writes.
Outcome<void> check_record(const PoolRecord& record) {
  if (!is_whole_path(record.mount)) return problem("its mount is not an absolute path");
  const bool is_drain = record.drain.empty() || is_whole_path(record.drain) ||
                        (is_object_store(record.drain) && ObjectPlace::parse(record.drain));
  if (!is_drain) return problem("its drain is not an absolute path");
  for (const Member& member : record.members) {
    // Never take a foreign process, or a process group, for a member.
    if (member.process.pid <= 1) return problem("a member has no number of a process");
    if (!member.host.empty() && !is_host(member.host)) return problem("a member has no valid host");
    if (!is_whole_path(member.directory)) return problem("a member has no absolute directory");
    if (!member.mount.empty() && !is_whole_path(member.mount)) {
      return problem("a member's mount is not an absolute path");
    }
  }
  for (const HostFolder& folder : record.host_folders) {
    if (!is_host(folder.host)) return problem("a folder of a host has no valid host");
    if (!is_whole_path(folder.directory))
      return problem("a folder of a host has no absolute directory");
  }
  if (record.starter.pid < 0) return problem("its starter has no number of a process");
  if (record.remote_shell.empty()) return problem("it has no remote shell");
  return {};
}

tl::unexpected<Problem> damaged(const std::string& directory, const std::string& why) {
  return problem(
      "{}/pool.json is damaged ({}); when no process of that pool runs, remove the directory",
      directory, why);
}

}  // namespace

Outcome<PoolRecord> parse_record(const std::string& directory, const std::string& text) {
  auto read = read_json([&]() -> Outcome<PoolRecord> {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) {
      return problem("{}/pool.json was written by another version of stdchk", directory);
    }
    PoolRecord record;
    record.directory = directory;
    record.mount = json.at("mount");
    record.drain = json.at("drain");
    record.created = json.at("created");
    record.manager_address = json.at("manager_address");
    if (json.contains("manager_command")) {
      record.manager_command = json.at("manager_command").get<std::vector<std::string>>();
    }
    record.remote_shell = json.at("remote_shell").get<std::vector<std::string>>();
    record.transport = json.at("transport");
    record.trusted_network = json.value("trusted_network", false);
    record.job_id = json.value("job_id", "");
    record.report = json.value("report", "");
    record.undrained = json.value("undrained", "");
    for (const auto& item : json.at("members")) {
      Member member;
      member.role = item.at("role");
      member.host = item.at("host");
      member.process.pid = pid_of(item.at("pid"));
      read_field(item, "start_ticks", member.process.start_ticks);
      member.boot_id = item.at("boot_id");
      member.log = item.at("log");
      member.mount = item.at("mount");
      member.directory = item.at("directory");
      member.metrics = item.value("metrics", "");
      member.mount_id = item.value("mount_id", std::uint64_t{0});
      record.members.push_back(std::move(member));
    }
    record.ready = json.value("ready", true);
    if (json.contains("starter")) {
      const Json& starter = json.at("starter");
      record.starter.pid = pid_of(starter.at("pid"));
      read_field(starter, "start_ticks", record.starter.start_ticks);
      record.starter_boot = starter.at("boot_id");
    }
    for (const auto& item : json.value("host_folders", Json::array())) {
      record.host_folders.push_back({item.at("host"), item.at("directory")});
    }
    if (const auto whole = check_record(record); !whole) {
      return damaged(directory, whole.error().text);
    }
    return record;
  });
  if (!read) return damaged(directory, read.error().text);
  return std::move(*read);
}

namespace {

/// A readable name for a path, unique by the FNV-1a hash of the whole path.
std::string key_of(const std::string& path) {
  std::uint64_t hash = 14695981039346656037ULL;
  std::string readable;
  for (char c : path) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    readable += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  if (readable.size() > 80) readable.erase(0, readable.size() - 80);
  return fmt::format("pool{}-{:016x}", readable, hash);
}

}  // namespace

Outcome<void> save(const PoolRecord& record) {
  std::string text;
  try {  // the JSON library throws
    text = to_json(record).dump(2) + "\n";
  } catch (const Json::type_error&) {
    return problem("{} cannot be written: a path or command in it is not UTF-8", record.path());
  }
  auto folder = open_state(record.directory);
  if (!folder) return problem(folder.error());
  // Writes the copy first: a kill may end this process between the two. If the directory is removed
  // later, the copy must not say that a usable pool never was usable: `up` would end the pool.
  if (record.spare != nullptr) {
    const auto secret = folder->read("secret", kSecretBytesMax);
    const auto key = folder->read("key", kSecretBytesMax);
    record.spare->write({text, secret.value_or(""), record.keeps_key ? key.value_or("") : ""});
  }
  if (const Status written = folder->write_at_once("pool.json", text); !written) {
    return failed(record.path() + " cannot be written", written.error());
  }
  return {};
}

Outcome<OwnFolder> open_state(const std::string& directory) {
  auto folder = OwnFolder::open(directory, kStateRules);
  if (!folder) return problem("{}", folder.error().text);
  return std::move(*folder);
}

Outcome<PoolRecord> load(const std::string& directory) {
  // Resolves a link from state_base(), because the directory itself must be removed.
  std::error_code code;
  const fs::path real = fs::canonical(directory, code);
  if (code || !fs::exists(fs::symlink_status(real / "pool.json", code))) {
    return problem("there is no pool in {}", directory);
  }
  auto folder = open_state(real);
  if (!folder) return problem(folder.error());
  const auto text = folder->read("pool.json", kRecordBytesMax);
  if (!text) return failed(real.string() + "/pool.json cannot be read", text.error());
  return parse_record(real, *text);
}

std::string metrics_file(const std::string& directory, const std::string& name) {
  return directory + "/" + name + ".metrics";
}

std::string metrics_address(const Member& member) {
  if (member.metrics.empty() || !member.host.empty()) return member.metrics;
  std::ifstream file(metrics_file(member.directory, fs::path(member.log).stem()));
  std::string now;
  std::getline(file, now);
  return now.empty() ? member.metrics : now;
}

bool is_alive(const Member& member) {
  return member.boot_id == boot_id() && is_alive(member.process);
}

std::string user_folder() { return fmt::format("/tmp/stdchk-{}", ::geteuid()); }

std::string state_base() {
  // The environment may name another user's folder, for example after su(1).
  struct stat facts {};
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR");
      runtime != nullptr && runtime[0] == '/' && ::stat(runtime, &facts) == 0 &&
      facts.st_uid == ::geteuid() && ::access(runtime, W_OK) == 0) {
    return absolute_path_of_link(runtime) + "/stdchk";
  }
  return user_folder();
}

std::string default_state_directory(const std::string& mount) {
  return state_base() + "/" + key_of(mount);
}

void announce(const std::string& directory, const std::string& mount) {
  const std::string link = default_state_directory(mount);
  if (link == directory) return;
  std::error_code ignored;
  if (fs::is_symlink(link, ignored)) fs::remove(link, ignored);
  fs::create_directory_symlink(directory, link, ignored);
}

void withdraw(const std::string& directory, const std::string& mount) {
  const std::string link = default_state_directory(mount);
  std::error_code ignored;
  if (link != directory && fs::is_symlink(link, ignored)) fs::remove(link, ignored);
}

std::vector<PoolRecord> known_pools() {
  std::vector<PoolRecord> pools;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(state_base(), ignored)) {
    if (auto record = load(entry.path().string())) pools.push_back(std::move(*record));
  }
  return pools;
}

namespace {

/// Finds the pool whose mount is the nearest above a path.
std::optional<PoolRecord> pool_of(const std::string& path, const std::vector<PoolRecord>& pools) {
  const PoolRecord* best = nullptr;
  for (const auto& pool : pools) {
    if (is_below(path, pool.mount) && (best == nullptr || pool.mount.size() > best->mount.size())) {
      best = &pool;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace

namespace {

/// Returns a pool that no `stdchk up` has started, such as a pool in Kubernetes: the variables are
/// those of programs that use the C library. The key's file is called "secret", as in a state
/// directory.
std::optional<PoolRecord> pool_of_environment() {
  const char* manager = std::getenv("STDCHK_MANAGER");
  const char* secret = std::getenv("STDCHK_SECRET_FILE");
  const char* mount = std::getenv("STDCHK_MOUNT");
  if (manager == nullptr || secret == nullptr) return std::nullopt;
  const fs::path key = absolute_path(secret);
  if (key.filename() != "secret") return std::nullopt;
  PoolRecord pool;
  pool.manager_address = manager;
  pool.directory = key.parent_path();
  pool.mount = mount == nullptr ? "/" : absolute_path(mount);
  return pool;
}

}  // namespace

Outcome<PoolRecord> find_pool(const std::string& named, const std::string& path) {
  std::string chosen = named;
  if (const char* set = std::getenv("STDCHK_POOL"); chosen.empty() && set != nullptr) chosen = set;
  if (!chosen.empty()) {
    chosen = absolute_path(chosen);
    std::error_code code;
    if (fs::exists(fs::symlink_status(chosen + "/pool.json", code))) return load(chosen);
    if (auto found = find_running_in(chosen)) return std::move(*found);
    return load(chosen);
  }
  const auto pools = known_pools();
  if (!path.empty()) {
    if (auto found = pool_of(absolute_path(path), pools)) return std::move(*found);
    if (auto found = pool_of(absolute_path_of_link(path), pools)) return std::move(*found);
    if (auto found = find_running(path)) return std::move(*found);
  }
  if (pools.empty()) {
    if (auto pool = pool_of_environment()) return std::move(*pool);
    return problem("there is no pool; start one with: stdchk up");
  }
  std::string mounts;
  for (const auto& pool : pools) mounts += (mounts.empty() ? "" : ", ") + pool.mount;
  if (!path.empty()) {
    return problem("{} is in no pool; the mounts of the pools are: {}", path, mounts);
  }
  if (pools.size() == 1) return pools.front();
  return problem("there are several pools; choose a pool by a path or --pool: {}", mounts);
}

bool is_chosen_by_environment(const std::string& named) {
  const char* const set = std::getenv("STDCHK_POOL");
  return set != nullptr && named == set;
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder ||
         (path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/'));
}

std::string absolute_path(const std::string& path) {
  std::error_code code;
  const fs::path full = absolute_text(fs::absolute(path, code));
  // Symbolic links on the way to the mount are resolved, but the path itself is not touched.
  if (full.has_parent_path() && full != full.root_path()) {
    const fs::path parent = fs::weakly_canonical(full.parent_path(), code);
    if (!code) return (parent / full.filename()).string();
  }
  return full.string();
}

std::string absolute_path_of_link(const std::string& path) { return real_mount_point(path); }

Outcome<std::string> path_in_pool(const PoolRecord& pool, const std::string& path) {
  std::string full = absolute_path(path);
  if (!is_below(full, pool.mount)) full = absolute_path_of_link(path);
  if (!is_below(full, pool.mount)) {
    return problem("{} is not below {}, where the pool is mounted", path, pool.mount);
  }
  if (full == pool.mount) return std::string();
  return full.substr(pool.mount == "/" ? 1 : pool.mount.size() + 1);
}

}  // namespace stdchk::tools
