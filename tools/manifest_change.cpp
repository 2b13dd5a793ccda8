#include "tools/manifest_change.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "tools/manifest.h"
#include "tools/process.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kAskAgain = 20ms;
constexpr std::int64_t kLeftOverSeconds = 600;

/// A LockedFile is open and locked until this object goes, when it is there and the file system has
/// locks.
class LockedFile {
 public:
  LockedFile(const DrainFolder& folder, Clock::time_point until) : folder_(folder) {
    // A lock over NFS needs the right to write.
    auto opened = open_manifest(folder, Access::kReadWrite);
    if (!opened) opened = open_manifest(folder, Access::kRead);
    is_absent_ = !opened && opened.error().os_errno == ENOENT;
    if (!opened) return;
    file_ = std::move(*opened);
    while (::flock(file_.file.get(), LOCK_EX | LOCK_NB) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) && Clock::now() < until) {
      sleep_for(kAskAgain);
    }
  }

  bool is_there() const { return static_cast<bool>(file_.file); }
  bool is_absent() const { return is_absent_; }
  /// False when another file has taken its place.
  bool has_name() const {
    const auto named = folder_.status(kManifestName);
    return named && file_.status.st_dev == named->st_dev && file_.status.st_ino == named->st_ino;
  }

 private:
  const DrainFolder& folder_;
  OpenedFile file_;
  bool is_absent_ = false;
};

/// A TemporaryFile is beside the file that it is to become. Its own name goes with this object.
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
  /// Durable. False with errno.
  bool write(const std::string& text) const {
    std::size_t done = 0;
    while (file_ && done < text.size()) {
      const ssize_t n = ::write(fd(), text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    return file_ && done == text.size() && share() && ::fsync(fd()) == 0;
  }

 private:
  /// With whoever may list the folder.
  bool share() const {
    const auto folder = folder_.own_status();
    if (!folder) return false;
    // Only root may; otherwise the file stays this process's.
    const bool given = ::fchown(fd(), folder->st_uid, folder->st_gid) == 0;
    const mode_t of_group = given ? folder->st_mode & S_IRGRP : 0;
    return ::fchmod(fd(), 0600 | of_group | (folder->st_mode & S_IROTH)) == 0;
  }

  const DrainFolder& folder_;
  const std::string name_;
  Descriptor file_;
};

/// The temporary files of those who were killed. The file system tells what is old, not this host's
/// clock.
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

/// Gives the new file its name: in place of `old`, or where there was none. False when another has
/// come first. Fails with errno.
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

/// True also when there is none.
Outcome<bool> remove_manifest(const DrainFolder& folder, const std::string& path) {
  if (::unlinkat(folder.get(), kManifestName, 0) != 0 && errno != ENOENT && errno != EISDIR) {
    return problem("{}/{} cannot be removed: {}", path, kManifestName, std::strerror(errno));
  }
  // One that comes back would call what was removed missing.
  (void)::fsync(folder.get());
  return true;
}

/// False when another has come first.
Outcome<bool> replace_entries(const DrainFolder& folder, const std::string& path,
                              const Json& entries, const LockedFile& old) {
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
    for (const std::string& name : names) entries.erase(name);
  };
  return change_manifest(folder, path, forget, Clock::now() + kManifestPatience);
}

}  // namespace stdchk::tools
