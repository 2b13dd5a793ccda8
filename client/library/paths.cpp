// Paths from the root of the pool, with symbolic links.
#include "client/library/paths.h"

#include <cerrno>
#include <deque>
#include <vector>

namespace stdchk::client::library {
namespace {

/// As Linux's path_resolution(7).
constexpr int kLinksMax = 40;

/// Puts the parts of `path` in front of `parts`, without empty ones and ".".
void add_in_front(std::string_view path, std::deque<std::string>& parts) {
  std::vector<std::string> found;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") found.emplace_back(part);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  parts.insert(parts.begin(), found.begin(), found.end());
}

}  // namespace

Result<Place> walk(Filesystem& filesystem, std::string_view path, LastLink last) {
  std::deque<std::string> rest;
  add_in_front(path, rest);
  STDCHK_ASSIGN(const Attributes root, filesystem.attributes(kRootFile));
  std::vector<Attributes> folders{root};
  int links = 0;
  while (!rest.empty()) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    if (folders.back().type != FileType::kDirectory) return fail(Code::kNotDirectory, "stdchk");
    if (name == "..") {
      if (folders.size() > 1) folders.pop_back();
      continue;
    }
    const FileId parent = folders.back().id;
    const auto entry =
        rest.empty() ? filesystem.lookup_fresh(parent, name) : filesystem.lookup(parent, name);
    if (!entry && rest.empty() && entry.error().code == Code::kNotFound) {
      return Place{parent, name, std::nullopt};
    }
    if (!entry) return fail(entry.error());
    if (entry->type == FileType::kSymlink && (!rest.empty() || last == LastLink::kFollow)) {
      if (++links > kLinksMax) return fail(Code::kSystem, "stdchk: symbolic links", ELOOP);
      STDCHK_ASSIGN(const std::string target, filesystem.read_symlink(entry->id));
      if (target.starts_with('/')) {
        return fail(Code::kSystem, "stdchk: a symbolic link leads out of the pool", EXDEV);
      }
      add_in_front(target, rest);
      continue;
    }
    if (rest.empty()) return Place{parent, name, *entry};
    folders.push_back(*entry);
  }
  return Place{folders.back().id, "", folders.back()};
}

Result<Attributes> find(Filesystem& filesystem, std::string_view path, LastLink last) {
  STDCHK_ASSIGN(const Place place, walk(filesystem, path, last));
  if (!place.attributes) return fail(Code::kNotFound, "stdchk");
  return *place.attributes;
}

Result<Attributes> find_folder(Filesystem& filesystem, std::string_view path) {
  STDCHK_ASSIGN(const Attributes found, find(filesystem, path, LastLink::kFollow));
  if (found.type != FileType::kDirectory) return fail(Code::kNotDirectory, "stdchk");
  return found;
}

}  // namespace stdchk::client::library
