#include "core/files/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>

#include "core/base/descriptor.h"
#include "core/base/whole_io.h"
#include "core/files/pool_files.h"

namespace stdchk {
namespace {

constexpr unsigned kLinksMax = 40;  ///< as the kernel's own limit, path_resolution(7)
constexpr std::size_t kAccountBytes = 16384;

std::optional<std::string> name_of(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, kAccountBytes> buffer;
  if (::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return std::nullopt;
  }
  return std::string(found->pw_name);
}

/// A group that has the user's name and no other member, as systems make one for each user.
bool is_own_group(gid_t group, uid_t user) {
  ::group entry{};
  ::group* found = nullptr;
  std::array<char, kAccountBytes> buffer;
  if (::getgrgid_r(group, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return false;
  }
  const auto own = name_of(user);
  if (!own || *own != found->gr_name) return false;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (*own != *member) return false;
  }
  return true;
}

/// The owner that files show in a user namespace whose map does not have their real owner
/// (user_namespaces(7)). All such owners look the same, and the host's root is among them.
std::optional<uid_t> unknown_owner() {
  std::ifstream map("/proc/self/uid_map");
  unsigned long inside = 0, outside = 0, count = 0;
  if (!(map >> inside >> outside >> count) || count >= 4294967295UL) return std::nullopt;
  uid_t unknown = 0;
  if (!(std::ifstream("/proc/sys/kernel/overflowuid") >> unknown)) return std::nullopt;
  return unknown;
}

bool is_trusted(uid_t owner) {
  if (owner == 0 || owner == ::geteuid()) return true;
  static const std::optional<uid_t> kUnknown = unknown_owner();
  return kUnknown == owner;
}

/// Others than the owner may write. An access control list shows its mask in the group's bits.
bool others_write(const struct stat& facts) {
  if ((facts.st_mode & S_IWOTH) != 0) return true;
  return (facts.st_mode & S_IWGRP) != 0 && facts.st_gid != 0 &&
         !is_own_group(facts.st_gid, facts.st_uid);
}

struct Part {
  std::string path;  ///< up to this part, for errors
  struct stat facts {};
};

/// Names the reason why other users could replace a folder on the way; empty: they cannot.
std::string distrust_above(const Part& part) {
  if (!is_trusted(part.facts.st_uid)) {
    return fmt::format("{} belongs to {}, who could put something else in its place", part.path,
                       user_text(part.facts.st_uid));
  }
  // In a sticky folder no other user renames or removes files of this user or of root.
  if (others_write(part.facts) && (part.facts.st_mode & S_ISVTX) == 0) {
    return fmt::format("others can write in {} (mode {:04o}) and put something else in its place",
                       part.path, part.facts.st_mode & 07777U);
  }
  return {};
}

std::string distrust_last(const Part& part, const FolderRules& rules) {
  if (part.facts.st_uid != ::geteuid()) {
    return fmt::format("it belongs to {}", user_text(part.facts.st_uid));
  }
  const mode_t mode = part.facts.st_mode & 07777U;
  if (rules.is_private && (mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fmt::format("it is open to others (mode {:04o})", mode);
  }
  if (others_write(part.facts)) return fmt::format("others can write in it (mode {:04o})", mode);
  return {};
}

void push_parts(std::deque<std::string>& rest, std::string_view path) {
  std::deque<std::string> parts;
  while (!path.empty()) {
    const auto end = std::min(path.find('/'), path.size());
    if (end > 0 && path.substr(0, end) != ".") parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  rest.insert(rest.begin(), parts.begin(), parts.end());
}

/// The name of a file until the file is whole.
std::string temporary_name() { return ".new-" + random_hex(8); }

bool sync_folder(int fd) {
  const Descriptor folder(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return !folder || ::fsync(folder.get()) == 0 || errno == EINVAL;
}

/// A Walk goes down a path part by part; see OwnFolder.
class Walk {
 public:
  Walk(const std::string& path, const FolderRules& rules, bool makes)
      : path_(path), rules_(rules), makes_(makes) {
    push_parts(rest_, path);
  }

  Outcome<Descriptor> run() {
    if (auto why = begin(); !why.empty()) return problem(refusal(why));
    if (rest_.empty()) return problem(refusal("it is the root of all folders"));
    while (!rest_.empty()) {
      if (auto why = step(); !why.empty()) return problem(refusal(why));
    }
    Descriptor folder(::openat(at_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return problem(refusal(std::strerror(errno)));
    return folder;
  }

 private:
  std::string refusal(const std::string& why) const {
    return fmt::format(
        "{} {} cannot be used: {}; make it a folder of your own, with mode {}, below folders that "
        "only you and root can change",
        rules_.what, path_, why, rules_.is_private ? "0700" : "0755");
  }

  std::string begin() {
    at_ = Descriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    shown_.clear();
    return at_ ? std::string() : std::string(std::strerror(errno));
  }

  /// The next part; why it cannot be gone to, or empty.
  std::string step() {
    const std::string name = rest_.front();
    rest_.pop_front();
    const bool is_last = rest_.empty();
    Part part{shown_ + "/" + name, {}};
    if (const int error = open_part(name, is_last); error != 0) {
      return fmt::format("{}: {}", part.path, std::strerror(error));
    }
    if (::fstat(next_.get(), &part.facts) != 0) return std::strerror(errno);
    if (S_ISLNK(part.facts.st_mode)) return is_last ? "it is a link" : follow(part);
    if (!S_ISDIR(part.facts.st_mode)) return part.path + " is no folder";
    std::string why = is_last             ? distrust_last(part, rules_)
                      : rules_.safe_above ? distrust_above(part)
                                          : std::string();
    at_ = std::move(next_);
    shown_ = std::move(part.path);
    return why;
  }

  int open_part(const std::string& name, bool is_last) {
    constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    next_ = Descriptor(::openat(at_.get(), name.c_str(), kFlags));
    if (next_ || errno != ENOENT || !makes_) return next_ ? 0 : errno;
    const mode_t mode = is_last && rules_.is_private ? 0700 : 0755;
    if (::mkdirat(at_.get(), name.c_str(), mode) != 0 && errno != EEXIST) return errno;
    if (!sync_folder(at_.get())) return errno;
    next_ = Descriptor(::openat(at_.get(), name.c_str(), kFlags));
    return next_ ? 0 : errno;
  }

  /// A link that root or this user has made leads where they wanted.
  std::string follow(const Part& link) {
    if (!is_trusted(link.facts.st_uid)) {
      return fmt::format("{} is a link of {}", link.path, user_text(link.facts.st_uid));
    }
    if (++links_ > kLinksMax) return "there are too many links on the way";
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(next_.get(), "", target.data(), target.size());
    if (length <= 0 || length == static_cast<ssize_t>(target.size())) {
      return fmt::format("the link {} cannot be read", link.path);
    }
    const std::string_view text(target.data(), static_cast<std::size_t>(length));
    push_parts(rest_, text);
    return text.starts_with('/') ? begin() : std::string();
  }

  const std::string& path_;
  const FolderRules& rules_;
  const bool makes_;
  std::deque<std::string> rest_;
  Descriptor at_;
  Descriptor next_;
  std::string shown_;
  unsigned links_ = 0;
};

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

/// The target of a link of this user or of root; nothing for another user's link or a relative one.
std::optional<std::string> target_of_own_link(const std::string& path) {
  const Descriptor link(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  if (!link || ::fstat(link.get(), &facts) != 0 || !is_trusted(facts.st_uid)) {
    return std::nullopt;
  }
  std::array<char, PATH_MAX> target;
  const ssize_t length = ::readlinkat(link.get(), "", target.data(), target.size());
  if (length <= 0 || length == static_cast<ssize_t>(target.size()) || target[0] != '/') {
    return std::nullopt;
  }
  return std::string(target.data(), static_cast<std::size_t>(length));
}

}  // namespace

std::string user_text(uid_t user) {
  const auto name = name_of(user);
  return name ? fmt::format("{} (uid {})", *name, user) : fmt::format("uid {}", user);
}

OwnFolder::~OwnFolder() {
  if (fd_ >= 0) ::close(fd_);
}

OwnFolder& OwnFolder::operator=(OwnFolder&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

Outcome<OwnFolder> OwnFolder::reach(const std::string& path, const FolderRules& rules, bool makes) {
  auto folder = Walk(path, rules, makes).run();
  if (!folder) return problem(std::move(folder.error()));
  return OwnFolder(folder->release(), path);
}

Outcome<OwnFolder> OwnFolder::open(const std::string& path, const FolderRules& rules) {
  return reach(path, rules, false);
}

Outcome<OwnFolder> OwnFolder::make(const std::string& path, const FolderRules& rules) {
  return reach(path, rules, true);
}

Result<std::string> OwnFolder::read(const std::string& name, std::size_t bytes_max) const {
  constexpr const char* kWhere = "own folder: read";
  if (!is_plain_name(name)) return fail(Code::kInvalidArgument, kWhere);
  // Without O_NONBLOCK, open() of a FIFO would wait for a writer.
  const Descriptor file(
      ::openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return fail_errno(kWhere);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return fail_errno(kWhere);
  if (!S_ISREG(facts.st_mode) || !is_trusted(facts.st_uid) || others_write(facts)) {
    return fail(Code::kSystem, kWhere, EPERM);
  }
  std::string text;
  if (!read_text(file.get(), bytes_max + 1, text)) return fail_errno(kWhere);
  if (text.size() > bytes_max) return fail(Code::kTooLarge, kWhere);
  return text;
}

Status OwnFolder::fill(const std::string& name, std::string_view text) const {
  constexpr const char* kWhere = "own folder: write";
  const Descriptor file(
      ::openat(fd_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(kWhere);
  if (write_all(file.get(), text) && ::fsync(file.get()) == 0) return {};
  const auto failed = fail_errno(kWhere);
  ::unlinkat(fd_, name.c_str(), 0);
  return failed;
}

Status OwnFolder::write_new(const std::string& name, std::string_view text) const {
  if (!is_plain_name(name)) return fail(Code::kInvalidArgument, "own folder: write");
  STDCHK_TRY(fill(name, text));
  if (!sync_folder(fd_)) return fail_errno("own folder: sync");
  return {};
}

Status OwnFolder::write_at_once(const std::string& name, std::string_view text) const {
  if (!is_plain_name(name)) return fail(Code::kInvalidArgument, "own folder: write");
  const std::string temporary = temporary_name();
  STDCHK_TRY(fill(temporary, text));
  if (::renameat(fd_, temporary.c_str(), fd_, name.c_str()) != 0) {
    const auto failed = fail_errno("own folder: rename");
    ::unlinkat(fd_, temporary.c_str(), 0);
    return failed;
  }
  if (!sync_folder(fd_)) return fail_errno("own folder: sync");
  return {};
}

Status OwnFolder::remove(const std::string& name) const {
  if (!is_plain_name(name)) return fail(Code::kInvalidArgument, "own folder: remove");
  if (::unlinkat(fd_, name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return fail_errno("own folder: remove");
}

bool OwnFolder::has(const std::string& name) const {
  struct stat facts {};
  return is_plain_name(name) && ::fstatat(fd_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<std::string> OwnFolder::names() const {
  std::vector<std::string> found;
  DIR* const folder = ::fdopendir(::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (is_plain_name(name)) found.push_back(name);
  }
  ::closedir(folder);
  return found;
}

Status append_to_own_file(const std::string& path, std::string_view text) {
  constexpr const char* kWhere = "append";
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Descriptor file(::open(path.c_str(), kFlags | O_CREAT | O_NOFOLLOW, 0644));
  const bool is_link = !file && errno == ELOOP;
  if (is_link) {
    const auto target = target_of_own_link(path);
    if (!target) return fail(Code::kSystem, kWhere, ELOOP);
    file = Descriptor(::open(target->c_str(), kFlags));
  }
  if (!file) return fail_errno(kWhere);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return fail_errno(kWhere);
  const bool is_own = S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() && facts.st_nlink == 1;
  const bool is_device = S_ISCHR(facts.st_mode) && facts.st_uid == 0;
  if (!is_link && !is_own && !is_device) return fail(Code::kSystem, kWhere, EPERM);
  if (!write_all(file.get(), text)) return fail_errno(kWhere);
  return {};
}

}  // namespace stdchk
