#include "core/files/drain_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/messages/messages.h"

namespace stdchk {
namespace {

constexpr int kLinksMax = 40;  // the kernel's limit (path_resolution(7))
constexpr uid_t kAnotherUser = 1;

tl::unexpected<Problem> refuse(const std::string& path, int os_errno) {
  return problem(
      Code::kSystem, "drain_directory", os_errno,
      fmt::format("the drain directory {} cannot be opened: {}", path, std::strerror(os_errno)));
}

bool is_link(int folder, const std::string& name, struct stat& there) {
  return ::fstatat(folder, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(there.st_mode);
}

}  // namespace

/// Puts the target of `link` in front of the remaining path.
Outcome<void> DrainDirectory::follow(int folder, const std::string& link, const std::string& walked,
                                     std::string& rest) const {
  struct stat there {};
  if (!is_link(folder, link, there)) return refuse(path_, ENOTDIR);
  std::array<char, limits::kPathBytesMax> text{};
  const ssize_t length = ::readlinkat(folder, link.c_str(), text.data(), text.size());
  if (length <= 0) return refuse(path_, errno);
  const std::string target(text.data(), static_cast<std::size_t>(length));
  const std::string place = walked + "/" + link;
  if (there.st_uid != 0 && there.st_uid != ::geteuid()) {
    const MutexLock lock(mutex_);
    const auto known = links_.find(place);
    const bool is_new = known == links_.end() && !opened_;
    if (is_new) links_.emplace(place, target);
    if (!is_new && (known == links_.end() || known->second != target)) {
      return problem(Code::kSystem, "drain_directory", ELOOP,
                     fmt::format("the drain directory {} leads elsewhere than before: {} is a "
                                 "link of uid {} to {}; start the pool anew if that is right",
                                 path_, place, there.st_uid, target));
    }
  }
  rest = rest.empty() ? target : target + "/" + rest;
  return {};
}

Outcome<DrainFolder> DrainDirectory::open() const {
  std::string rest = path_;
  std::string walked;
  int links = 0;
  Descriptor folder;
  const auto begin = [&] {
    const bool absolute = !rest.empty() && rest.front() == '/';
    if (absolute || !folder) {
      walked = absolute ? "" : ".";
      folder = Descriptor(::open(absolute ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
  };
  if (rest.empty()) return refuse(path_, ENOENT);
  begin();
  while (folder && !rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    if (part.empty() || part == ".") continue;
    Descriptor next(
        ::openat(folder.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (next) {
      folder = std::move(next);
      walked += "/" + part;
      continue;
    }
    if (errno != ENOTDIR && errno != ELOOP) return refuse(path_, errno);
    if (++links > kLinksMax) return refuse(path_, ELOOP);
    if (auto followed = follow(folder.get(), part, walked, rest); !followed) {
      return tl::unexpected(followed.error());
    }
    begin();
  }
  if (!folder) return refuse(path_, errno);
  Descriptor root(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return refuse(path_, errno);
  const MutexLock lock(mutex_);
  opened_ = true;
  return DrainFolder(std::move(root), walk_);
}

std::optional<FileMaker> DrainDirectory::file_maker(const DrainFolder& root) const {
  const MutexLock lock(mutex_);
  if (maker_) return maker_;
  const auto folder = root.folder(msg::kTemporaryFolder);
  if (!folder) return std::nullopt;
  const auto file = folder->create_unnamed();
  struct stat there {};
  if (!file || ::fstat(file->get(), &there) != 0) return std::nullopt;
  FileMaker maker{there.st_uid, false};
  maker.gives_files = ::fchown(file->get(), kAnotherUser, static_cast<gid_t>(-1)) == 0 &&
                      ::fstat(file->get(), &there) == 0 && there.st_uid == kAnotherUser;
  return maker_ = maker;
}

bool DrainDirectory::may_belong(const DrainFolder& root, const struct stat& file,
                                std::uint32_t uid) const {
  if (uid == msg::kUnknownUid || file.st_uid == uid) return true;
  const uid_t self = ::geteuid();
  if (self != 0 && file.st_uid == self) return true;
  if (const auto maker = file_maker(root)) return file.st_uid == maker->uid && !maker->gives_files;
  // No trial file can be made on a read-only file system: trust the temporary folder's owner.
  const auto folder = root.status(msg::kTemporaryFolder);
  if (!folder || folder->st_uid != file.st_uid) return false;
  return file.st_uid != 0 || (file.st_mode & S_IROTH) != 0;
}

Outcome<OpenedFile> DrainDirectory::open_drained(const DrainFolder& root, const std::string& path,
                                                 std::uint32_t uid) const {
  auto opened = root.open(path, Access::kRead);
  if (!opened || may_belong(root, opened->status, uid)) return opened;
  return problem(Code::kSystem, "drain_directory", EPERM,
                 fmt::format("{} in the drain directory belongs to uid {}, and in the pool to uid "
                             "{}: it is not the file that was drained",
                             path, opened->status.st_uid, uid));
}

}  // namespace stdchk
