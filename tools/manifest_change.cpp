#include "tools/manifest_change.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "core/durable.h"
#include "tools/manifest.h"
#include "tools/process.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kLockPatience = 60s;
constexpr auto kAskAgain = 20ms;
constexpr std::int64_t kLeftOverSeconds = 600;

/// A LockedFile is open and locked until this object goes, when it is there and the file system has
/// locks.
class LockedFile {
 public:
  LockedFile(const std::string& path, Clock::time_point until) {
    // A lock over NFS needs the right to write.
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return;
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
           Clock::now() < until) {
      sleep_for(kAskAgain);
    }
  }
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  bool is_there() const { return fd_ >= 0; }
  /// False when another file has taken its place.
  bool has_name(const std::string& path) const {
    struct stat mine {};
    struct stat named {};
    return ::fstat(fd_, &mine) == 0 && ::stat(path.c_str(), &named) == 0 &&
           mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
  }

 private:
  int fd_ = -1;
};

/// A TemporaryFile is beside the file that it is to become. Its own name goes with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& beside)
      : path_(fmt::format("{}.{}.{:08x}", beside, ::getpid(), std::random_device()())),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {}
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  /// Durable. False with errno.
  bool write(const std::string& text) const {
    std::size_t done = 0;
    while (fd_ >= 0 && done < text.size()) {
      const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    return fd_ >= 0 && done == text.size() && ::fsync(fd_) == 0;
  }

 private:
  std::string path_;
  int fd_;
};

/// The temporary files of those who were killed. The file system tells what is old, not this host's
/// clock.
void remove_leftovers(const std::string& folder, const TemporaryFile& mine) {
  struct stat now {};
  if (::fstat(mine.fd(), &now) != 0) return;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const std::string path = entry.path();
    struct stat status {};
    const std::string name = entry.path().filename();
    if (!is_manifest(name) || name == kManifestName) continue;
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (now.st_mtime - status.st_mtime > kLeftOverSeconds) ::unlink(path.c_str());
  }
}

/// Gives the new file its name: in place of `old`, or where there was none. False when another has
/// come first. Fails with errno.
Outcome<bool> take_name(const TemporaryFile& file, const std::string& path, const LockedFile& old) {
  if (old.is_there()) {
    if (!old.has_name(path)) return false;
  } else if (::link(file.path().c_str(), path.c_str()) == 0) {
    return true;
  } else if (errno == EEXIST) {
    return false;
  }
  if (::rename(file.path().c_str(), path.c_str()) == 0) return true;
  return problem("{} cannot be written: {}", path, std::strerror(errno));
}

/// True also when there is none.
Outcome<bool> remove_manifest(const std::string& folder, const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return problem("{} cannot be removed: {}", path, std::strerror(errno));
  }
  // One that comes back would call what was removed missing.
  (void)sync_path(folder);
  return true;
}

/// False when another has come first.
Outcome<bool> replace_entries(const std::string& folder, const Json& entries,
                              const LockedFile& old) {
  const std::string path = folder + "/" + kManifestName;
  if (entries.empty()) return remove_manifest(folder, path);
  const TemporaryFile file(path);
  if (!file.write(Json{{"format", 1}, {"files", entries}}.dump(1) + "\n")) {
    return problem("{} cannot be written: {}", path, std::strerror(errno));
  }
  remove_leftovers(folder, file);
  auto named = take_name(file, path, old);
  if (named && *named) (void)sync_path(folder);
  return named;
}

}  // namespace

Outcome<void> change_manifest(const std::string& folder,
                              const std::function<void(Json& entries)>& change) {
  const std::string path = folder + "/" + kManifestName;
  const auto until = Clock::now() + kLockPatience;
  for (;;) {
    const LockedFile old(path, until);
    if (old.is_there() && !old.has_name(path) && Clock::now() < until) continue;
    const Json before = manifest_entries(folder);
    Json entries = before;
    change(entries);
    if (entries == before) return {};
    auto done = replace_entries(folder, entries, old);
    if (!done) return problem(done.error());
    if (*done) return {};
    if (Clock::now() > until) return problem("{} is changed by others all the time", path);
  }
}

Outcome<void> forget_in_manifest(const std::string& folder, const std::vector<std::string>& names) {
  return change_manifest(folder, [&](Json& entries) {
    for (const std::string& name : names) entries.erase(name);
  });
}

}  // namespace stdchk::tools
