// opendir(3) and its like.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>

#include "core/base/mutex.h"
#include "preload/open_files.h"
#include "preload/places.h"
#include "preload/real.h"

using stdchk::Mutex;
using stdchk::MutexLock;
using namespace stdchk::preload;

namespace {

/// A Folder is what opendir() returns for a folder of the pool.
///
/// Owns: the list, and the descriptor that dirfd() tells. Threads: one at a time.
struct Folder {
  std::string path;
  stdchk_dir* list = nullptr;
  int fd = -1;
  int dots = 0;       ///< how many of "." and ".." were returned
  long returned = 0;  ///< entries that were returned
  dirent entry{};
};

Mutex folders_mutex;
std::unordered_set<const void*>& folders() STDCHK_REQUIRES(folders_mutex) {
  static auto* const one = new std::unordered_set<const void*>;
  return *one;
}

Folder* ours(DIR* dir) {
  const MutexLock lock(folders_mutex);
  return folders().count(dir) > 0 ? reinterpret_cast<Folder*>(dir) : nullptr;
}

bool read_list(Folder& folder) {
  stdchk_pool* connected = pool();
  stdchk_dir* list =
      connected == nullptr ? nullptr : stdchk_opendir(connected, folder.path.c_str());
  if (list == nullptr) return false;
  if (folder.list != nullptr) stdchk_closedir(folder.list);
  folder.list = list;
  folder.dots = 0;
  folder.returned = 0;
  return true;
}

DIR* open_folder(const std::string& path, int fd) {
  auto folder = std::make_unique<Folder>();
  folder->path = path;
  if (!read_list(*folder)) return nullptr;
  folder->fd = fd;
  const MutexLock lock(folders_mutex);
  folders().insert(folder.get());
  return reinterpret_cast<DIR*>(folder.release());
}

dirent* tell(Folder& folder, const char* name, std::uint64_t id, mode_t mode) {
  folder.entry = {};
  folder.entry.d_ino = id;
  folder.entry.d_off = ++folder.returned;
  folder.entry.d_reclen = sizeof(dirent);
  folder.entry.d_type = IFTODT(mode);
  const std::size_t length = std::min(std::strlen(name), sizeof(folder.entry.d_name) - 1);
  std::memcpy(folder.entry.d_name, name, length);
  return &folder.entry;
}

dirent* next(Folder& folder) {
  // The number of a folder's parent is not known here; no entry has the number 1.
  if (folder.dots < 2) return tell(folder, folder.dots++ == 0 ? "." : "..", 1, S_IFDIR);
  const stdchk_entry* entry = stdchk_readdir(folder.list);
  if (entry == nullptr) return nullptr;
  return tell(folder, entry->name, entry->attributes.id, entry->attributes.mode);
}

}  // namespace

extern "C" {

DIR* opendir(const char* path) {
  if (!place_of(path)) return STDCHK_REAL(opendir)(path);
  const int fd = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  DIR* dir = open_folder(*place_of(path), fd);
  if (dir == nullptr) {
    const int error = errno;
    ::close(fd);
    errno = error;
  }
  return dir;
}

DIR* fdopendir(int fd) {
  const OpenFilePtr file = OpenFiles::all().find(fd);
  if (file == nullptr) return STDCHK_REAL(fdopendir)(fd);
  if (file->is_folder()) return open_folder(file->path, fd);
  errno = ENOTDIR;
  return nullptr;
}

dirent* readdir(DIR* dir) {
  Folder* folder = ours(dir);
  return folder != nullptr ? next(*folder) : STDCHK_REAL(readdir)(dir);
}
dirent64* readdir64(DIR* dir) {
  // On 64-bit machines struct dirent64 is struct dirent.
  Folder* folder = ours(dir);
  return folder != nullptr ? reinterpret_cast<dirent64*>(next(*folder))
                           : STDCHK_REAL(readdir64)(dir);
}

int closedir(DIR* dir) {
  Folder* folder = ours(dir);
  if (folder == nullptr) return STDCHK_REAL(closedir)(dir);
  {
    const MutexLock lock(folders_mutex);
    folders().erase(dir);
  }
  const std::unique_ptr<Folder> owner(folder);
  stdchk_closedir(folder->list);
  return ::close(folder->fd);
}

int dirfd(DIR* dir) noexcept {
  Folder* folder = ours(dir);
  return folder != nullptr ? folder->fd : STDCHK_REAL(dirfd)(dir);
}

void rewinddir(DIR* dir) noexcept {
  Folder* folder = ours(dir);
  if (folder == nullptr) return STDCHK_REAL(rewinddir)(dir);
  read_list(*folder);
}

long telldir(DIR* dir) noexcept {
  Folder* folder = ours(dir);
  return folder != nullptr ? folder->returned : STDCHK_REAL(telldir)(dir);
}

void seekdir(DIR* dir, long place) noexcept {
  Folder* folder = ours(dir);
  if (folder == nullptr) return STDCHK_REAL(seekdir)(dir, place);
  if (!read_list(*folder)) return;
  while (folder->returned < place && next(*folder) != nullptr) {
  }
}

}  // extern "C"
