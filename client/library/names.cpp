// Folders and names of the C interface.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "client/library/errors.h"
#include "client/library/objects.h"
#include "client/library/paths.h"

using namespace stdchk::client::library;
using stdchk::Code;
using stdchk::Result;
using stdchk::client::Filesystem;

namespace {

/// Finds where a new name goes. kExists when the name is there, which includes a link.
Result<Place> new_place(Filesystem& filesystem, const char* path) {
  STDCHK_ASSIGN(Place place, walk(filesystem, path, LastLink::kStay));
  if (place.attributes) return stdchk::fail(Code::kExists, "stdchk");
  return place;
}

/// Finds a name that is to be removed or renamed.
Result<Place> present_place(Filesystem& filesystem, const char* path) {
  STDCHK_ASSIGN(Place place, walk(filesystem, path, LastLink::kStay));
  if (!place.attributes) return stdchk::fail(Code::kNotFound, "stdchk");
  if (place.name.empty()) return stdchk::fail(Code::kBusy, "stdchk: the path ends with .. or is /");
  return place;
}

int remove(stdchk_pool* pool, const char* path, bool directory) {
  const auto place = present_place(*pool->filesystem, path);
  if (!place) return failed(place.error());
  const auto left = pool->filesystem->remove(place->parent, place->name, directory);
  return left ? 0 : failed(left.error());
}

}  // namespace

extern "C" {

stdchk_dir* stdchk_opendir(stdchk_pool* pool, const char* path) {
  const auto folder = find_folder(*pool->filesystem, path);
  if (!folder) {
    failed(folder.error());
    return nullptr;
  }
  auto entries = pool->filesystem->read_directory(folder->id);
  if (!entries) {
    failed(entries.error());
    return nullptr;
  }
  auto* dir = new stdchk_dir;
  dir->entries = std::move(*entries);
  return dir;
}

const struct stdchk_entry* stdchk_readdir(stdchk_dir* dir) {
  if (dir->next == dir->entries.size()) return nullptr;
  const auto& entry = dir->entries[dir->next++];
  dir->shown.name = entry.name.c_str();
  show(entry.attributes, dir->shown.attributes);
  return &dir->shown;
}

void stdchk_closedir(stdchk_dir* dir) { delete dir; }

int stdchk_mkdir(stdchk_pool* pool, const char* path, mode_t mode) {
  const auto place = new_place(*pool->filesystem, path);
  if (!place) return failed(place.error());
  const auto made = pool->filesystem->make_directory(place->parent, place->name,
                                                     {mode & 07777, ::getuid(), ::getgid()});
  return made ? 0 : failed(made.error());
}

int stdchk_rmdir(stdchk_pool* pool, const char* path) { return remove(pool, path, true); }

int stdchk_unlink(stdchk_pool* pool, const char* path) { return remove(pool, path, false); }

int stdchk_rename(stdchk_pool* pool, const char* from, const char* to, unsigned flags) {
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) {
    return failed(Code::kInvalidArgument,
                  "stdchk_rename: `flags` are 0, RENAME_NOREPLACE or RENAME_EXCHANGE.");
  }
  const auto source = present_place(*pool->filesystem, from);
  if (!source) return failed(source.error());
  const auto target = walk(*pool->filesystem, to, LastLink::kStay);
  if (!target) return failed(target.error());
  if (target->name.empty()) {
    return failed(Code::kBusy, "stdchk_rename: the new path ends with .. or is /.");
  }
  stdchk::msg::Rename change;
  change.from_parent = source->parent;
  change.from_name = source->name;
  change.to_parent = target->parent;
  change.to_name = target->name;
  change.no_replace = flags == RENAME_NOREPLACE;
  change.exchange = flags == RENAME_EXCHANGE;
  const auto left = pool->filesystem->rename(change);
  return left ? 0 : failed(left.error());
}

int stdchk_symlink(stdchk_pool* pool, const char* target, const char* path) {
  const auto place = new_place(*pool->filesystem, path);
  if (!place) return failed(place.error());
  const auto made = pool->filesystem->make_symlink(place->parent, place->name, target,
                                                   {0777, ::getuid(), ::getgid()});
  return made ? 0 : failed(made.error());
}

ssize_t stdchk_readlink(stdchk_pool* pool, const char* path, char* target, size_t size) {
  const auto link = find(*pool->filesystem, path, LastLink::kStay);
  if (!link) return failed(link.error());
  if (link->type != stdchk::FileType::kSymlink) {
    return failed(Code::kInvalidArgument, "stdchk_readlink: the path is not a symbolic link.");
  }
  const auto text = pool->filesystem->read_symlink(link->id);
  if (!text) return failed(text.error());
  const std::size_t count = std::min(size, text->size());
  std::memcpy(target, text->data(), count);
  return static_cast<ssize_t>(count);
}

}  // extern "C"
