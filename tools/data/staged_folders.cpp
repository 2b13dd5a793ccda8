#include "tools/data/staged_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file_time.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// The mode of a new folder without a drained copy.
constexpr std::uint32_t kFolderMode = 0755;

}  // namespace

StagedFolders::StagedFolders(client::Filesystem& filesystem, const DrainedSource& from, FileId to,
                             const std::string& place)
    : filesystem_(filesystem), from_(from), place_(place), known_{{fs::path(), to}} {}

Outcome<FileId> StagedFolders::folder(const std::string& below) {
  fs::path path;
  FileId at = known_.at(path);
  for (const fs::path& part : below.empty() ? place_ : place_ / below) {
    path /= part;
    const auto known = known_.find(path);
    if (known == known_.end()) {
      const auto next = make(at, path);
      if (!next) return problem(next.error());
      at = known_[path] = *next;
    } else {
      at = known->second;
    }
  }
  return at;
}

Outcome<FileId> StagedFolders::make(FileId parent, const fs::path& path) {
  const std::string name = path.filename().string();
  const auto there = filesystem_.lookup_fresh(parent, name);
  if (there && there->type != FileType::kDirectory)
    return problem("{} is no folder", path.string());
  if (there) return there->id;
  if (there.error().code != Code::kNotFound) return failed(path.string(), there.error());
  const auto status = drained(path);
  client::Owner owner{kFolderMode, ::getuid(), ::getgid()};
  if (status) owner = {status->st_mode & 07777U, status->st_uid, status->st_gid};
  const auto made = filesystem_.make_directory(parent, name, owner);
  if (!made) return failed(path.string(), made.error());
  if (status) made_.push_back({made->id, path.string(), to_ns(status->st_mtim)});
  return made->id;
}

std::optional<struct stat> StagedFolders::drained(const fs::path& path) const {
  const fs::path below = path.lexically_relative(place_);
  if (*below.begin() == "..") return std::nullopt;
  const auto status = from_.status(below == "." ? std::string() : below.string());
  if (!status || !S_ISDIR(status->st_mode)) return std::nullopt;
  return *status;
}

Outcome<void> StagedFolders::set_times() {
  // A folder's own time does not change the time of the folder above it.
  for (const Made& folder : made_) {
    msg::SetAttributes change;
    change.file = folder.id;
    change.mask = static_cast<std::uint32_t>(msg::SetMask::kMtime);
    change.mtime_ns = folder.mtime_ns;
    if (const auto done = filesystem_.set_attributes(change); !done) {
      return failed(folder.path, done.error());
    }
  }
  return {};
}

}  // namespace stdchk::tools
