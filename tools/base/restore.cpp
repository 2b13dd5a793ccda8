#include "tools/base/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tools/base/running.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// Writes a file again that was removed.
bool put_back(const OwnFolder& folder, const std::string& name, const std::string& text) {
  return text.empty() || folder.has(name) || folder.write_new(name, text).has_value();
}

/// Only the processes: enough to end them.
PoolRecord record_of_processes(const Running& pool) {
  PoolRecord record;
  record.directory = pool.directory;
  record.mount = pool.mount.empty() ? pool.directory : pool.mount;
  record.manager_address = pool.manager_address;
  record.remote_shell = {"ssh"};
  record.ready = true;
  record.members = pool.members;
  return record;
}

std::optional<PoolRecord> kept_record(const Running& pool, SpareRecord::Content& content) {
  for (const Member& member : pool.members) {
    const auto spare = SpareRecord::of(member.process);
    if (spare == nullptr) continue;
    auto kept = spare->read();
    if (!kept) continue;
    auto record = parse_record(pool.directory, kept->record);
    if (!record) continue;
    content = std::move(*kept);
    record->spare = spare;
    return std::move(*record);
  }
  return std::nullopt;
}

bool has_record(const Running& pool) {
  std::error_code code;
  return fs::exists(fs::symlink_status(pool.directory + "/pool.json", code));
}

PoolRecord restore(const Running& pool) {
  SpareRecord::Content content;
  auto record = kept_record(pool, content);
  if (!record) {
    fmt::print(stderr,
               "stdchk: the state directory {} was removed, and no process keeps its record; only "
               "`stdchk down` works, and other hosts are not reached\n",
               pool.directory);
    return record_of_processes(pool);
  }
  auto folder = OwnFolder::make(pool.directory, kStateRules);
  const bool good = folder && put_back(*folder, "pool.json", content.record) &&
                    put_back(*folder, "secret", content.secret) &&
                    put_back(*folder, "key", content.key);
  if (!good) {
    fmt::print(stderr, "stdchk: the state directory {} was removed and cannot be made again: {}\n",
               pool.directory, folder ? "its files cannot be written" : folder.error().text);
    return std::move(*record);
  }
  announce(record->directory, record->mount);
  fmt::print(
      stderr,
      "stdchk: the state directory {} was removed, and was made again from data of the pool's "
      "processes, without logs and journal\n",
      pool.directory);
  return std::move(*record);
}

}  // namespace

std::optional<PoolRecord> find_running_in(const std::string& directory) {
  const Running pool = running_in(directory);
  if (pool.members.empty() || has_record(pool)) return std::nullopt;
  return restore(pool);
}

std::optional<PoolRecord> find_running(const std::string& path) {
  const std::string wanted = absolute_path_of_link(path);
  for (Running& pool : running_pools()) {
    if (!pool.mount.empty() && !is_below(wanted, pool.mount)) continue;
    if (has_record(pool)) {
      auto record = load(pool.directory);
      if (record && is_below(wanted, record->mount)) return std::move(*record);
      continue;
    }
    if (pool.mount.empty()) {  // without a mount only the record says where the pool is
      SpareRecord::Content content;
      const auto record = kept_record(pool, content);
      if (!record || !is_below(wanted, record->mount)) continue;
    }
    return restore(pool);
  }
  return std::nullopt;
}

}  // namespace stdchk::tools
