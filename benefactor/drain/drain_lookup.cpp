#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "benefactor/drain/drain_attributes.h"
#include "benefactor/drain/drain_paths.h"
#include "benefactor/drain/file_drainer.h"
#include "core/base/limits.h"

namespace stdchk::benefactor {
namespace {

/// A time in the past. A file made now has it only if the file system keeps the time it is given.
constexpr timespec kLongAgo{1'000'000'000, 0};

/// Returns true when the folder for temporary files exists, which the first drain makes. Without
/// it, `root` may be an empty mount point: the file system of the drain directory is not mounted.
bool is_drain_directory(const DrainFolder& root) {
  const auto there = root.status(msg::kTemporaryFolder);
  return there && S_ISDIR(there->st_mode);
}

/// Returns true when the file system keeps the times that it is given. Some file systems accept
/// futimens(2) and ignore it. Also returns true when the test file cannot be made.
bool preserves_times(const DrainFolder& root) {
  const auto folder = root.folder(msg::kTemporaryFolder);
  const auto file = folder ? folder->create_unnamed() : Outcome<Descriptor>();
  if (!folder || !file) return true;
  const timespec times[2] = {{0, UTIME_OMIT}, kLongAgo};
  struct stat there {};
  if (::futimens(file->get(), times) != 0 || ::fstat(file->get(), &there) != 0) return false;
  return equals_stored_time(to_ns(kLongAgo), there.st_mtim);
}

Outcome<bool> is_there(const DrainDirectory& directory, const DrainFolder& root,
                       const msg::FindDrained::Wanted& wanted) {
  if (auto parts = split_path(wanted.path); !parts) return problem(parts.error());
  const auto there = root.status(wanted.path);
  if (!there) {
    const int why = there.error().error.os_errno;
    if (why == ENOENT || why == ENOTDIR || why == ELOOP) return false;
    return storage_problem("looking up", wanted.path, why);
  }
  return S_ISREG(there->st_mode) &&
         static_cast<std::uint64_t>(there->st_size) == wanted.size_bytes &&
         directory.may_belong(root, *there, wanted.uid) &&
         (equals_stored_time(wanted.mtime_ns, there->st_mtim) || !preserves_times(root));
}

}  // namespace

Outcome<msg::FindDrained::Reply> FileDrainer::find(const msg::FindDrained& request, Time deadline) {
  auto root = open_root(directory_);
  if (!root) return problem(root.error());
  msg::FindDrained::Reply reply;
  for (std::uint32_t i = 0; i < request.files.size(); ++i) {
    if (auto going = give_up_check(deadline); !going) return problem(going.error());
    const auto there = is_there(directory_, *root, request.files[i]);
    if (!there) return problem(there.error());
    if (!*there) reply.missing.push_back(i);
  }
  if (!reply.missing.empty() && !is_drain_directory(*root)) {
    return problem(Code::kDrainFailed, "benefactor.find_drained", ENOENT,
                   fmt::format("{} is not the drain directory: it has no folder {}. Mount its file "
                               "system on this host. If somebody removed all, make the folder.",
                               directory_.path(), msg::kTemporaryFolder));
  }
  return reply;
}

}  // namespace stdchk::benefactor
