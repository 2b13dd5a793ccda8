#include "tools/pool_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/durable.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormat = 1;

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
                       {"directory", member.directory},
                       {"metrics", member.metrics}});
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
          {"members", members}};
}

/// The one place where the JSON library's exceptions are met while reading.
Outcome<PoolRecord> from_json(const std::string& directory, const std::string& text) {
  try {
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
      member.process.pid = item.at("pid");
      member.process.start_ticks = item.at("start_ticks");
      member.boot_id = item.at("boot_id");
      member.log = item.at("log");
      member.mount = item.at("mount");
      member.directory = item.at("directory");
      member.metrics = item.value("metrics", "");
      record.members.push_back(std::move(member));
    }
    return record;
  } catch (const Json::exception& wrong) {
    return problem(
        "{}/pool.json is damaged ({}); remove the directory when no process of that "
        "pool runs any more",
        directory, wrong.what());
  }
}

/// A name for a path that two paths do not share: readable, then FNV-1a of the whole.
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
  const std::string temporary = record.path() + ".new";
  std::string text;
  try {  // the JSON library's exception
    text = to_json(record).dump(2) + "\n";
  } catch (const Json::type_error&) {
    return problem("{} cannot be written: a path or command in it is not UTF-8", record.path());
  }
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool good = fd >= 0 &&
                    ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    ::fsync(fd) == 0;
  const int code = errno;
  if (fd >= 0) ::close(fd);
  if (!good || ::rename(temporary.c_str(), record.path().c_str()) != 0) {
    return problem("{} cannot be written: {}", record.path(), std::strerror(good ? errno : code));
  }
  if (const Status named = sync_path(record.directory); !named) {
    return problem("{} cannot be synced: {}", record.directory,
                   std::strerror(named.error().os_errno));
  }
  return {};
}

Outcome<PoolRecord> load(const std::string& directory) {
  std::ifstream file(directory + "/pool.json");
  if (!file) return problem("there is no pool in {}", directory);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Not the link that leads to it from state_base(): what is removed must be the directory itself.
  std::error_code code;
  const fs::path real = fs::canonical(directory, code);
  return from_json(code ? directory : real.string(), text);
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

std::string state_base() {
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR");
      runtime != nullptr && ::access(runtime, W_OK) == 0) {
    return std::string(runtime) + "/stdchk";
  }
  return fmt::format("/tmp/stdchk-{}", ::getuid());
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

Outcome<PoolRecord> find_pool(const std::string& named, const std::string& path) {
  if (!named.empty()) return load(absolute_path(named));
  if (const char* chosen = std::getenv("STDCHK_POOL"); chosen != nullptr && chosen[0] != '\0') {
    return load(absolute_path(chosen));
  }
  const auto pools = known_pools();
  if (!path.empty()) {
    const std::string wanted = absolute_path(path);
    const PoolRecord* best = nullptr;
    for (const auto& pool : pools) {
      if (is_below(wanted, pool.mount) &&
          (best == nullptr || pool.mount.size() > best->mount.size())) {
        best = &pool;
      }
    }
    if (best != nullptr) return *best;
  }
  if (pools.empty()) return problem("there is no pool; start one with: stdchk up");
  std::string mounts;
  for (const auto& pool : pools) mounts += (mounts.empty() ? "" : ", ") + pool.mount;
  if (!path.empty()) {
    return problem("{} is in no pool; the mounts of the pools are: {}", path, mounts);
  }
  if (pools.size() == 1) return pools.front();
  return problem("there are several pools; say which with a path or --pool: {}", mounts);
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder ||
         (path.starts_with(folder) && (folder == "/" || path[folder.size()] == '/'));
}

std::string absolute_path(const std::string& path) {
  std::error_code code;
  fs::path full = fs::absolute(path, code).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  // Symbolic links on the way to the mount are resolved, but the path itself is not touched.
  if (full.has_parent_path() && full != full.root_path()) {
    const fs::path parent = fs::weakly_canonical(full.parent_path(), code);
    if (!code) return (parent / full.filename()).string();
  }
  return full.string();
}

Outcome<std::string> path_in_pool(const PoolRecord& pool, const std::string& path) {
  const std::string full = absolute_path(path);
  if (!is_below(full, pool.mount)) {
    return problem("{} is not below {}, where the pool is mounted", path, pool.mount);
  }
  return full == pool.mount ? std::string() : full.substr(pool.mount.size() + 1);
}

}  // namespace stdchk::tools
