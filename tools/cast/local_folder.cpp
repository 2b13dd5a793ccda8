#include "tools/cast/local_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/base/whole_io.h"
#include "core/files/pool_files.h"
#include "core/policy/reserved_names.h"

namespace stdchk::tools {
namespace {

std::string temporary_name() { return std::string(kRestartPrefix) + random_hex(8); }

std::string last_part(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

LocalFile::~LocalFile() {
  if (!temporary_.empty() && folder_) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

tl::unexpected<Problem> LocalFile::failed_to_write() const {
  return problem("{} cannot be written: {}", path_, std::strerror(errno));
}

Outcome<void> LocalFile::write(std::uint64_t offset, ByteSpan bytes) {
  if (!write_at(file_.get(), offset, bytes)) return failed_to_write();
  return {};
}

Outcome<void> LocalFile::read(std::uint64_t offset, MutableByteSpan out) const {
  if (read_at(file_.get(), offset, out) == static_cast<ssize_t>(out.size())) return {};
  return problem("{} cannot be read: {}", path_, std::strerror(errno));
}

Outcome<void> LocalFile::set_size(std::uint64_t size_bytes) {
  if (::ftruncate(file_.get(), static_cast<off_t>(size_bytes)) != 0) return failed_to_write();
  return {};
}

Outcome<void> LocalFile::finish(mode_t mode) {
  // close() before the rename: NFS may report missing room only there.
  if (::fchmod(file_.get(), mode) != 0 || ::close(file_.release()) != 0 ||
      ::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) {
    return failed_to_write();
  }
  temporary_.clear();
  return {};
}

Outcome<LocalFolder> LocalFolder::open(const std::string& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return problem("{} cannot be opened: {}", path, std::strerror(errno));
  return LocalFolder(path, DrainFolder(std::move(folder)));
}

tl::unexpected<Problem> LocalFolder::cannot_be_made(const std::string& path, int os_errno) const {
  return problem("{}/{} cannot be made: {}", path_, path, std::strerror(os_errno));
}

Outcome<void> LocalFolder::make_folder(const std::string& path) const {
  const auto parent = folder_.parent_of(path);
  if (!parent) return cannot_be_made(path, parent.error().error.os_errno);
  if (::mkdirat(parent->get(), last_part(path).c_str(), 0700) != 0 && errno != EEXIST) {
    return cannot_be_made(path, errno);
  }
  const auto made = folder_.folder(path);
  if (!made) return cannot_be_made(path, made.error().error.os_errno);
  const auto status = made->own_status();
  if (!status) return cannot_be_made(path, status.error().error.os_errno);
  if (status->st_uid != ::geteuid()) {
    return problem("{}/{} belongs to another user (uid {}): remove it, or give another folder",
                   path_, path, status->st_uid);
  }
  return {};
}

Outcome<void> LocalFolder::make_link(const std::string& path, const std::string& target) const {
  const auto parent = folder_.parent_of(path);
  if (!parent) return cannot_be_made(path, parent.error().error.os_errno);
  const std::string temporary = temporary_name();
  if (::symlinkat(target.c_str(), parent->get(), temporary.c_str()) != 0) {
    return cannot_be_made(path, errno);
  }
  const std::string name = last_part(path);
  if (::renameat(parent->get(), temporary.c_str(), parent->get(), name.c_str()) != 0) {
    const int why = errno;
    ::unlinkat(parent->get(), temporary.c_str(), 0);
    return cannot_be_made(path, why);
  }
  return {};
}

Outcome<LocalFile> LocalFolder::create(const std::string& path) const {
  auto parent = folder_.parent_of(path);
  if (!parent) return cannot_be_made(path, parent.error().error.os_errno);
  std::string temporary = temporary_name();
  auto made = parent->create(temporary);
  if (!made) return cannot_be_made(path, made.error().error.os_errno);
  return LocalFile(path_ + "/" + path, last_part(path), std::move(*parent), std::move(temporary),
                   std::move(made->file));
}

std::string LocalFolder::find_other(
    const std::string& path, const std::function<bool(const std::string&)>& is_wanted) const {
  const auto folder = folder_.folder(path);
  if (!folder) return {};
  const auto names = folder->names();
  if (!names) return {};
  for (const std::string& name : *names) {
    if (name.starts_with(kRestartPrefix)) continue;
    std::string inner = path + "/" + name;
    if (!is_wanted(inner)) return inner;
    const auto status = folder->status(name);
    if (!status || !S_ISDIR(status->st_mode)) continue;
    if (std::string other = find_other(inner, is_wanted); !other.empty()) return other;
  }
  return {};
}

}  // namespace stdchk::tools
