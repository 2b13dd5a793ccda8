#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "benefactor/drain_attributes.h"
#include "benefactor/drain_paths.h"
#include "benefactor/file_drainer.h"
#include "core/limits.h"

namespace stdchk::benefactor {
namespace {

/// A time that no file made now has by itself.
constexpr timespec kLongAgo{1'000'000'000, 0};

/// Whoever has drained there has made that folder. Without it this is not the drain directory, but
/// perhaps what its file system is mounted on.
bool is_drain_directory(const Descriptor& root) {
  struct stat there {};
  return ::fstatat(root.get(), msg::kTemporaryFolder, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(there.st_mode);
}

/// True when a file of the drain directory has the time that it was given: some file systems take
/// any and keep none. Where that cannot be tried they count as kept.
bool keeps_times(const Descriptor& root) {
  std::string path = fmt::format("/proc/self/fd/{}/{}/times.XXXXXX", root.get(),  //
                                 msg::kTemporaryFolder);
  const Descriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) return true;
  ::unlink(path.c_str());
  const timespec times[2] = {{0, UTIME_OMIT}, kLongAgo};
  struct stat there {};
  if (::futimens(file.get(), times) != 0 || ::fstat(file.get(), &there) != 0) return false;
  return is_time_of(to_ns(kLongAgo), there.st_mtim);
}

Outcome<bool> is_there(const Descriptor& root, const msg::FindDrained::Wanted& wanted) {
  auto place = find_place(root, wanted.path, Missing::kFails);
  if (!place) {
    const int why = place.error().error.os_errno;
    if (why == ENOENT || why == ENOTDIR || why == ELOOP) return false;
    return problem(place.error());
  }
  struct stat there {};
  if (::fstatat(place->folder.get(), place->name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return storage_problem("looking up", place->path, errno);
  }
  return S_ISREG(there.st_mode) && static_cast<std::uint64_t>(there.st_size) == wanted.size_bytes &&
         (is_time_of(wanted.mtime_ns, there.st_mtim) || !keeps_times(root));
}

}  // namespace

Outcome<msg::FindDrained::Reply> FileDrainer::find(const msg::FindDrained& request, Time deadline) {
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  msg::FindDrained::Reply reply;
  for (std::uint32_t i = 0; i < request.files.size(); ++i) {
    if (auto going = give_up_check(deadline); !going) return problem(going.error());
    const auto there = is_there(*root, request.files[i]);
    if (!there) return problem(there.error());
    if (!*there) reply.missing.push_back(i);
  }
  if (!reply.missing.empty() && !is_drain_directory(*root)) {
    return problem(Code::kDrainFailed, "benefactor.find_drained", ENOENT,
                   fmt::format("{} is not what was drained to: it has no folder {}; mount its file "
                               "system on this host, or make that folder if all was removed.",
                               directory_, msg::kTemporaryFolder));
  }
  return reply;
}

}  // namespace stdchk::benefactor
