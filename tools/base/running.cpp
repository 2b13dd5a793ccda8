#include "tools/base/running.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/files/own_folder.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSpareName = "stdchk-record";
constexpr std::size_t kSpareBytesMax = kRecordBytesMax * 2;

/// The word behind a flag; empty: the flag is missing.
std::string value_of(const std::vector<std::string>& words, std::string_view flag) {
  const auto found = std::ranges::find(words, flag);
  return found == words.end() || found + 1 == words.end() ? std::string() : *(found + 1);
}

/// "manager" of "stdchk-manager"; empty: no part of a pool.
std::string role_of(const std::vector<std::string>& words) {
  const std::string program = fs::path(words[0]).filename();
  if (program == "stdchk-manager") {
    return value_of(words, "--standby").empty() ? "manager" : "standby";
  }
  if (program == "stdchk-benefactor") return "benefactor";
  if (program == "stdchk-mount") return "mount";
  const bool records =
      std::ranges::count(words, "--undrained") > 0 || std::ranges::count(words, "--safe-file") > 0;
  if (program == "stdchk" && records) return "recorder";
  return {};
}

/// Empty when the words name no state directory as `stdchk up` does.
std::string directory_of(const std::vector<std::string>& words, const std::string& role) {
  if (role == "recorder") return value_of(words, "--pool");
  const fs::path secret = value_of(words, "--secret-file");
  const bool is_known = secret.filename() == "secret" || secret.extension() == ".member";
  return is_known && secret.is_absolute() ? secret.parent_path().string() : std::string();
}

/// The log in the directory is named after the ready file; see Job.
std::string log_of(const std::vector<std::string>& words, const std::string& role,
                   const std::string& directory) {
  const std::string ready = value_of(words, "--ready-file");
  const std::string name = ready.empty() ? role : fs::path(ready).stem().string();
  return directory + "/" + name + ".log";
}

}  // namespace

std::vector<Running> running_pools() {
  const std::vector<FoundProcess> processes = own_processes();
  std::set<pid_t> parts;
  for (const FoundProcess& process : processes) {
    if (!role_of(process.words).empty()) parts.insert(process.id.pid);
  }
  std::vector<Running> pools;
  for (const FoundProcess& process : processes) {
    const std::string role = role_of(process.words);
    if (role.empty()) continue;
    // The process that serves a mount is a child of its guard, which ends it.
    if (role == "mount" && parts.contains(process.parent)) continue;
    const std::string directory = directory_of(process.words, role);
    if (directory.empty()) continue;
    auto pool = std::ranges::find(pools, directory, &Running::directory);
    if (pool == pools.end()) pool = pools.insert(pools.end(), Running{directory, {}, {}, {}});
    Member member;
    member.role = role;
    member.process = process.id;
    member.boot_id = boot_id();
    member.directory = directory;
    member.log = log_of(process.words, role, directory);
    if (role == "mount") pool->mount = member.mount = process.words.back();
    if (role == "mount" || role == "benefactor") {
      pool->manager_address = value_of(process.words, "--manager");
    }
    pool->members.push_back(std::move(member));
  }
  return pools;
}

Running running_in(const std::string& directory) {
  for (Running& pool : running_pools()) {
    if (pool.directory == directory) return std::move(pool);
  }
  return {directory, {}, {}, {}};
}

std::string describe(const Running& pool) {
  if (pool.members.empty()) return fmt::format("state directory {}", pool.directory);
  const auto mount = std::ranges::find(pool.members, "mount", &Member::role);
  const Member& named = mount == pool.members.end() ? pool.members.front() : *mount;
  return fmt::format("pid {} of {}, state directory {}, since {}", named.process.pid,
                     user_text(::geteuid()), pool.directory, began_text(named.process));
}

Outcome<std::shared_ptr<SpareRecord>> SpareRecord::make() {
  const int fd = ::memfd_create(kSpareName, MFD_CLOEXEC);
  if (fd < 0) return problem("no memory for the pool's record: {}", std::strerror(errno));
  return std::shared_ptr<SpareRecord>(new SpareRecord(fd));
}

std::shared_ptr<SpareRecord> SpareRecord::of(const ProcessId& process) {
  const std::string path = fmt::format("/proc/{}/fd/0", process.pid);
  std::error_code code;
  const std::string name = fs::read_symlink(path, code).string();
  if (code || !name.starts_with(fmt::format("/memfd:{}", kSpareName))) return nullptr;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return nullptr;
  std::shared_ptr<SpareRecord> spare(new SpareRecord(fd));
  struct stat facts {};
  // Another user who starts a program with this user's rights chooses its standard input.
  const bool good = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) &&
                    facts.st_uid == ::geteuid() && is_alive(process);
  return good ? spare : nullptr;
}

SpareRecord::~SpareRecord() { ::close(fd_); }

void SpareRecord::write(const Content& content) const {
  const std::string text = spare_text(content);
  if (::ftruncate(fd_, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
}

std::optional<SpareRecord::Content> SpareRecord::read() const {
  struct stat facts {};
  if (::fstat(fd_, &facts) != 0 || facts.st_size <= 0) return std::nullopt;
  if (static_cast<std::size_t>(facts.st_size) > kSpareBytesMax) return std::nullopt;
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  const ssize_t got = ::pread(fd_, text.data(), text.size(), 0);
  if (got != static_cast<ssize_t>(text.size())) return std::nullopt;
  return parse_spare(text);
}

std::shared_ptr<SpareRecord> spare_of(const PoolRecord& pool) {
  for (const Member& member : pool.members) {
    if (!member.host.empty() || !is_alive(member)) continue;
    if (auto spare = SpareRecord::of(member.process)) return spare;
  }
  return nullptr;
}

std::string spare_text(const SpareRecord::Content& content) {
  try {  // the JSON library's exception
    return Json{{"record", content.record}, {"secret", content.secret}, {"key", content.key}}
        .dump();
  } catch (const Json::type_error&) {
    return {};
  }
}

std::optional<SpareRecord::Content> parse_spare(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto member = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  SpareRecord::Content content{member("record"), member("secret"), member("key")};
  if (content.record.empty()) return std::nullopt;
  return content;
}

}  // namespace stdchk::tools
