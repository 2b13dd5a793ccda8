#include "core/files/drain_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>

#include "core/base/limits.h"

namespace stdchk {
namespace {

/// The kernel says EAGAIN when a folder above was renamed meanwhile, and for a lease.
constexpr int kAttempts = 4;

tl::unexpected<Problem> refuse(int os_errno, std::string text) {
  return problem(Code::kSystem, "drain_folder", os_errno, std::move(text));
}

std::string_view remedy(int os_errno) {
  switch (os_errno) {
    case EAGAIN:
      return "; a folder above it was just renamed, or somebody holds a lease on it (fcntl(2))";
    case ELOOP:
    case ENOTDIR:
      return "; remove what stands in the way: a file or link where a folder belongs";
    default:
      return "";
  }
}

tl::unexpected<Problem> refuse_call(const std::string& path, int os_errno) {
  return refuse(os_errno, fmt::format("{} in the drain directory cannot be opened: {}{}",
                                      path.empty() ? "a folder" : path, std::strerror(os_errno),
                                      remedy(os_errno)));
}

tl::unexpected<Problem> refuse_kind(const std::string& path, mode_t mode) {
  const int number = S_ISLNK(mode) ? ELOOP : S_ISDIR(mode) ? EISDIR : EINVAL;
  return refuse(number, fmt::format("{} in the drain directory is {}, where a plain file belongs; "
                                    "remove it",
                                    path, kind_of(mode)));
}

/// The parts of a path; nothing for a path that may lead elsewhere.
std::optional<std::vector<std::string>> parts_of(const std::string& path) {
  if (path.size() > limits::kPathBytesMax || path.find('\0') != std::string::npos) {
    return std::nullopt;
  }
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    parts.push_back(path.substr(at, end - at));
    if (parts.back().empty() || parts.back() == "." || parts.back() == "..") return std::nullopt;
    at = end + 1;
  }
  return parts;
}

tl::unexpected<Problem> refuse_path(const std::string& path) {
  return refuse(EINVAL, fmt::format("\"{}\" is not a plain path below the drain directory",
                                    path.substr(0, 64)));
}

int try_openat2(int folder, const char* path, int flags, unsigned mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    fd = ::syscall(SYS_openat2, folder, path, &how, sizeof(how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
  }
  return static_cast<int>(fd);
}

std::string join(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    text += fmt::format("{}{}", text.empty() ? "" : " or ", number);
  }
  return text;
}

Outcome<void> check(const std::string& path, const struct stat& there,
                    const ExpectedFile& expected) {
  if (!S_ISREG(there.st_mode)) return refuse_kind(path, there.st_mode);
  const auto& owners = expected.owners;
  if (!owners.empty() && std::ranges::find(owners, there.st_uid) == owners.end()) {
    return refuse(EPERM,
                  fmt::format("{} in the drain directory belongs to uid {} instead of {}: it "
                              "is not the file that was drained",
                              path, there.st_uid, join(owners)));
  }
  if (expected.inode && *expected.inode != there.st_ino) {
    return refuse(ESTALE, fmt::format("{} in the drain directory was replaced", path));
  }
  if (expected.size_bytes && *expected.size_bytes != static_cast<std::uint64_t>(there.st_size)) {
    return refuse(ESTALE, fmt::format("{} in the drain directory has {} bytes instead of {}", path,
                                      there.st_size, *expected.size_bytes));
  }
  if (expected.one_name && there.st_nlink > 1) {
    return refuse(EMLINK, fmt::format("{} in the drain directory has {} names (hard links); remove "
                                      "it",
                                      path, there.st_nlink));
  }
  return {};
}

}  // namespace

std::string_view kind_of(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISREG(mode)) return "a plain file";
  return "a device";
}

/// As openat(2), without links; without a descriptor errno says why.
Descriptor DrainFolder::open_at(const std::string& path, int flags, unsigned mode) const {
  flags |= O_CLOEXEC | O_NOFOLLOW;
  if (walk_ == Walk::kByHand) return walk_by_hand(path, flags, mode);
  Descriptor opened(try_openat2(get(), path.c_str(), flags, mode));
  // Some filters of system calls answer EPERM for what they do not know.
  if (!opened && (errno == ENOSYS || errno == EPERM)) return walk_by_hand(path, flags, mode);
  return opened;
}

Descriptor DrainFolder::walk_by_hand(const std::string& path, int flags, unsigned mode) const {
  Descriptor folder;
  std::size_t at = 0;
  for (std::size_t end = path.find('/'); end != std::string::npos; end = path.find('/', at)) {
    const std::string part = path.substr(at, end - at);
    const int from = folder ? folder.get() : get();
    Descriptor next(::openat(from, part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return next;
    folder = std::move(next);
    at = end + 1;
  }
  return Descriptor(::openat(folder ? folder.get() : get(), path.c_str() + at, flags, mode));
}

Outcome<DrainFolder> DrainFolder::folder(const std::string& path) const {
  if (!path.empty() && !parts_of(path)) return refuse_path(path);
  Descriptor opened = open_at(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
  if (!opened) return refuse_call(path, errno);
  return DrainFolder(std::move(opened), walk_);
}

Outcome<DrainFolder> DrainFolder::parent_of(const std::string& path) const {
  if (!parts_of(path)) return refuse_path(path);
  const std::size_t slash = path.rfind('/');
  return folder(slash == std::string::npos ? "" : path.substr(0, slash));
}

Outcome<OpenedFile> DrainFolder::open(const std::string& path, Access access,
                                      const ExpectedFile& expected) const {
  // Opening a device may start an action of the device, so status() comes first.
  const auto before = status(path);
  if (!before) return tl::unexpected(before.error());
  if (const auto good = check(path, *before, expected); !good) return tl::unexpected(good.error());
  const int mode = access == Access::kRead ? O_RDONLY : O_RDWR;
  OpenedFile opened;
  opened.file = open_at(path, mode | O_NONBLOCK | O_NOCTTY, 0);
  if (!opened.file) return refuse_call(path, errno);
  if (::fstat(opened.file.get(), &opened.status) != 0) return refuse_call(path, errno);
  if (const auto good = check(path, opened.status, expected); !good) {
    return tl::unexpected(good.error());
  }
  // O_NONBLOCK was for the open only; some file systems would mind it at reads.
  (void)::fcntl(opened.file.get(), F_SETFL, mode);
  return opened;
}

Outcome<OpenedFile> DrainFolder::create(const std::string& name) const {
  if (!parts_of(name)) return refuse_path(name);
  OpenedFile made;
  made.file = open_at(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!made.file) return refuse_call(name, errno);
  if (::fstat(made.file.get(), &made.status) != 0) return refuse_call(name, errno);
  return made;
}

Outcome<Descriptor> DrainFolder::create_unnamed() const {
  Descriptor made(::openat(get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (made) return made;
  std::random_device random;
  const std::string name = fmt::format(".new.{:08x}{:08x}", random(), random());
  auto named = create(name);
  if (!named) return tl::unexpected(named.error());
  ::unlinkat(get(), name.c_str(), 0);
  return std::move(named->file);
}

Outcome<struct stat> DrainFolder::status(const std::string& path) const {
  if (!parts_of(path)) return refuse_path(path);
  struct stat status {};
  if (path.find('/') == std::string::npos) {
    if (::fstatat(get(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return status;
    return refuse_call(path, errno);
  }
  const Descriptor there = open_at(path, O_PATH, 0);
  if (!there || ::fstat(there.get(), &status) != 0) return refuse_call(path, errno);
  return status;
}

Outcome<struct stat> DrainFolder::own_status() const {
  struct stat status {};
  if (::fstat(get(), &status) != 0) return refuse_call("", errno);
  return status;
}

Outcome<FoundLink> DrainFolder::link(const std::string& path) const {
  if (!parts_of(path)) return refuse_path(path);
  const Descriptor there = open_at(path, O_PATH, 0);
  FoundLink found;
  if (!there || ::fstat(there.get(), &found.status) != 0) return refuse_call(path, errno);
  std::array<char, limits::kPathBytesMax + 1> target{};
  const ssize_t length = ::readlinkat(there.get(), "", target.data(), target.size());
  if (length < 0) return refuse_call(path, errno);
  if (length == 0 || static_cast<std::size_t>(length) == target.size()) {
    return refuse_call(path, ENAMETOOLONG);
  }
  found.target.assign(target.data(), static_cast<std::size_t>(length));
  return found;
}

Outcome<std::string> DrainFolder::link_target(const std::string& path) const {
  auto found = link(path);
  if (!found) return problem(found.error());
  return std::move(found->target);
}

Outcome<std::vector<std::string>> DrainFolder::names() const {
  struct Closer {
    void operator()(DIR* dir) const { ::closedir(dir); }
  };
  // Opened anew: a duplicate would share its place in the listing with this descriptor.
  Descriptor own(::openat(get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return refuse_call("", errno);
  const std::unique_ptr<DIR, Closer> listing(::fdopendir(own.get()));
  if (!listing) return refuse_call("", errno);
  own.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) return refuse_call("", errno);
  std::ranges::sort(names);
  return names;
}

WritableFolder::WritableFolder(const DrainFolder& folder) : folder_(folder) {
  constexpr mode_t kOwnerWrites = S_IWUSR | S_IXUSR;
  const auto status = folder.own_status();
  if (!status || status->st_uid != ::geteuid() || ::geteuid() == 0) return;
  const mode_t mode = status->st_mode & 07777;
  if ((mode & kOwnerWrites) == kOwnerWrites) return;
  // By this name chmod reaches a descriptor of O_PATH, too.
  const std::string self = fmt::format("/proc/self/fd/{}", folder.get());
  if (::chmod(self.c_str(), mode | kOwnerWrites) == 0) before_ = mode;
}

WritableFolder::~WritableFolder() {
  if (!before_) return;
  const int saved = errno;
  ::chmod(fmt::format("/proc/self/fd/{}", folder_.get()).c_str(), *before_);
  errno = saved;
}

}  // namespace stdchk
