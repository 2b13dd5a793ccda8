#include "tools/drained/manifest_change.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/whole_io.h"
#include "core/files/pool_files.h"
#include "tools/base/process.h"
#include "tools/drained/manifest.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kAskAgain = 20ms;
constexpr std::int64_t kLeftOverSeconds = 600;

/// A LockedFile keeps a file open and locked, if it exists and the file system has locks.
class LockedFile {
 public:
  LockedFile(const DrainFolder& folder, Clock::time_point until) : folder_(folder) {
    // A lock over NFS requires write access.
    auto opened = open_manifest(folder, Access::kReadWrite);
    if (!opened) opened = open_manifest(folder, Access::kRead);
    is_absent_ = !opened && opened.error().error.os_errno == ENOENT;
    if (!opened) return;
    file_ = std::move(*opened);
    while (::flock(file_.file.get(), LOCK_EX | LOCK_NB) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) && Clock::now() < until) {
      sleep_for(kAskAgain);
    }
  }

  bool is_there() const { return static_cast<bool>(file_.file); }
  bool is_absent() const { return is_absent_; }
  /// False when another file has replaced it.
  bool has_name() const {
    const auto named = folder_.status(kManifestName);
    return named && file_.status.st_dev == named->st_dev && file_.status.st_ino == named->st_ino;
  }

 private:
  const DrainFolder& folder_;
  OpenedFile file_;
  bool is_absent_ = false;
};

/// A TemporaryFile lies beside the file that it will replace. Its own name vanishes with this
/// object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const DrainFolder& folder)
      : folder_(folder),
        name_(fmt::format("{}.{}.{:08x}", kManifestName, ::getpid(), std::random_device()())) {
    if (auto made = folder.create(name_)) file_ = std::move(made->file);
  }
  ~TemporaryFile() {
    if (file_) ::unlinkat(folder_.get(), name_.c_str(), 0);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& name() const { return name_; }
  int fd() const { return file_.get(); }
  /// Writes durably. Returns false on an error, with errno set.
  bool write(const std::string& text) const {
    return file_ && write_all(fd(), text) && share() && ::fsync(fd()) == 0;
  }

 private:
  /// Gives read access to all users who may list the folder.
  bool share() const {
    const auto folder = folder_.own_status();
    if (!folder) return false;
    // Only root can change the owner; otherwise the file stays this process's.
    const bool given = ::fchown(fd(), folder->st_uid, folder->st_gid) == 0;
    const mode_t of_group = given ? folder->st_mode & S_IRGRP : 0;
    return ::fchmod(fd(), 0600 | of_group | (folder->st_mode & S_IROTH)) == 0;
  }

  const DrainFolder& folder_;
  const std::string name_;
  Descriptor file_;
};

/// Removes temporary files of killed processes. Judges their age by the file system's clock, not
/// this host's.
void remove_leftovers(const DrainFolder& folder, const TemporaryFile& mine) {
  struct stat now {};
  const auto names = folder.names();
  if (!names || ::fstat(mine.fd(), &now) != 0) return;
  for (const std::string& name : *names) {
    if (!is_manifest(name) || name == kManifestName) continue;
    const auto status = folder.status(name);
    if (!status || !S_ISREG(status->st_mode)) continue;
    if (now.st_mtime - status->st_mtime > kLeftOverSeconds) {
      ::unlinkat(folder.get(), name.c_str(), 0);
    }
  }
}

/// Renames the new file into place, over `old` or as the first. False: another process came first.
/// Fails with errno.
Outcome<bool> take_name(const DrainFolder& folder, const std::string& path,
                        const TemporaryFile& file, const LockedFile& old) {
  const char* const from = file.name().c_str();
  if (old.is_there()) {
    if (!old.has_name()) return false;
  } else if (old.is_absent()) {
    if (::linkat(folder.get(), from, folder.get(), kManifestName, 0) == 0) return true;
    if (errno == EEXIST) return false;
  }
  if (::renameat(folder.get(), from, folder.get(), kManifestName) == 0) return true;
  if (errno == EISDIR) {
    fmt::print(stderr, "stdchk: {}/{} is a folder, so no manifest is written there; remove it\n",
               path, kManifestName);
    return true;
  }
  return problem("{}/{} cannot be written: {}", path, kManifestName, std::strerror(errno));
}

/// Removes the manifest. True also if there is none.
Outcome<bool> remove_manifest(const DrainFolder& folder, const std::string& path) {
  if (::unlinkat(folder.get(), kManifestName, 0) != 0 && errno != ENOENT && errno != EISDIR) {
    return problem("{}/{} cannot be removed: {}", path, kManifestName, std::strerror(errno));
  }
  // Sync the removal: a manifest that came back after a crash would list removed files as missing.
  (void)::fsync(folder.get());
  return true;
}

/// False: another process came first.
Outcome<bool> replace_entries(const DrainFolder& folder, const std::string& path,
                              const Json& entries, const LockedFile& old) {
  const WritableFolder writable(folder);
  if (entries.empty()) return remove_manifest(folder, path);
  const TemporaryFile file(folder);
  if (!file.write(Json{{"format", 1}, {"files", entries}}.dump(1) + "\n")) {
    return problem("{}/{} cannot be written: {}", path, kManifestName, std::strerror(errno));
  }
  remove_leftovers(folder, file);
  auto named = take_name(folder, path, file, old);
  if (named && *named) (void)::fsync(folder.get());
  return named;
}

}  // namespace

Outcome<void> change_manifest(const DrainFolder& folder, const std::string& path,
                              const std::function<void(Json& entries)>& change,
                              Clock::time_point until) {
  for (int turn = 0;; ++turn) {
    const LockedFile old(folder, until);
    if (old.is_there() && !old.has_name() && Clock::now() < until) continue;
    const Json before = manifest_entries(folder);
    Json entries = before;
    change(entries);
    if (entries == before) return {};
    auto done = replace_entries(folder, path, entries, old);
    if (!done) return problem(done.error());
    if (*done) return {};
    if (turn > 0 && Clock::now() > until) {
      return problem("{}/{} is changed by others all the time", path, kManifestName);
    }
  }
}

Outcome<void> forget_in_manifest(const DrainFolder& folder, const std::string& path,
                                 const std::vector<std::string>& names) {
  const auto forget = [&](Json& entries) {
    for (const std::string& name : names) entries.erase(manifest_key(name));
  };
  return change_manifest(folder, path, forget, Clock::now() + kManifestPatience);
}

}  // namespace stdchk::tools
