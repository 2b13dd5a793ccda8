#include "fork/process/image_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/log.h"
#include "core/files/drain_folder.h"

namespace stdchk::fork {
namespace {

struct Place {
  OwnFolder folder;
  std::string name;
};

Outcome<Place> place_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) {
    return problem(fmt::format("{} is not an absolute path of a file in a folder", path));
  }
  auto folder = OwnFolder::open(path.substr(0, slash), kImagesRules);
  if (!folder) return problem(folder.error());
  return Place{std::move(*folder), path.substr(slash + 1)};
}

std::string reason_of(int os_errno) {
  switch (os_errno) {
    case ELOOP:
      return "it is a symbolic link";
    case EINVAL:
    case EISDIR:
      return "it is no plain file";
    case EPERM:
      return "it belongs to another user";
    case ESTALE:
      return "its size is not the size of the parent's memory";
    case EMLINK:
      return "it has a second name (hard link)";
    default:
      return std::strerror(os_errno);
  }
}

}  // namespace

Outcome<Descriptor> make_image(const std::string& path) {
  const auto place = place_of(path);
  if (!place) return problem(place.error());
  ::unlinkat(place->folder.fd(), place->name.c_str(), 0);
  Descriptor file(::openat(place->folder.fd(), place->name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return problem(fmt::format("{}: {}", path, std::strerror(errno)));
  return file;
}

Outcome<Descriptor> open_image(const std::string& path, std::uint64_t bytes) {
  const auto place = place_of(path);
  if (!place) return problem(place.error());
  const DrainFolder folder(Descriptor(::fcntl(place->folder.fd(), F_DUPFD_CLOEXEC, 0)));
  auto opened =
      folder.open(place->name, Access::kRead,
                  {.inode = {}, .size_bytes = bytes, .owners = {::geteuid()}, .one_name = true});
  if (!opened) {
    return problem(fmt::format("the image {} is not used: {}", path,
                               reason_of(opened.error().error.os_errno)));
  }
  return std::move(opened->file);
}

void remove_image(const std::string& path) {
  const auto place = place_of(path);
  const Status removed = place ? place->folder.remove(place->name) : Status();
  if (!place) log::warning("the image {} stays: {}", path, place.error().text);
  if (!removed) log::warning("the image {} stays: {}", path, describe(removed.error()));
}

}  // namespace stdchk::fork
