#include "manager/state/outdated_markers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/policy/name_patterns.h"

namespace stdchk::manager {
namespace {

/// Returns true when a marker that was committed as number `marked` vouches for the file. Its
/// writer had opened it before, although it may have closed it later.
bool is_vouched(const File& file, std::uint64_t marked) {
  return file.type == FileType::kRegular && file.newest.version > 0 &&
         std::min(file.newest.sequence, file.newest.opened) < marked;
}

}  // namespace

File* OutdatedMarkers::set_of(FileId folder) {
  const FileId directory = catalog_.names().directory(folder);
  return directory ? catalog_.files.find(directory) : nullptr;
}

bool OutdatedMarkers::is_marker(const File& folder, std::string_view name) const {
  return catalog_.names().part(folder, name) == SetPart::kMarker;
}

/// Calls `visit(marker, name)` for each marker of the set. Looks only at names that begin as a
/// pattern does, because a set may have many files.
template <class Visit>
void OutdatedMarkers::each_marker(const File& directory, const Visit& visit) {
  const std::string text = catalog_.names().set_rules(directory).marker;
  const auto& children = directory.as_directory.children;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view pattern = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(rest.size(), pattern.size() + 1));
    const std::string_view prefix = pattern.substr(0, pattern.find_first_of("*?[\\"));
    for (auto child = children.lower_bound(prefix);
         child != children.end() && child->first.starts_with(prefix); ++child) {
      if (!NamePatterns(pattern).match(child->first)) continue;
      File& file = *catalog_.files.find(child->second);
      if (file.type == FileType::kRegular && file.newest.version > 0) visit(file, child->first);
    }
  }
}

void OutdatedMarkers::note_commit(const File& file, std::uint64_t opened) {
  if (!has_sets() || !file.parent) return;
  note_loss(file, *catalog_.files.file(file.parent), file.name, opened);
  for (const Link& link : file.links) {
    note_loss(file, *catalog_.files.file(link.parent), link.name, opened);
  }
}

void OutdatedMarkers::note_loss(const File& file, const File& folder, std::string_view name,
                                std::uint64_t opened) {
  if (!has_sets()) return;
  File* const directory = set_of(folder.id);
  if (directory == nullptr || is_marker(folder, name)) return;
  std::uint64_t marked = 0;
  bool is_itself_marker = false;
  each_marker(*directory, [&](const File& marker, std::string_view) {
    marked = std::max(marked, marker.newest.sequence);
    is_itself_marker = is_itself_marker || &marker == &file;
  });
  if (marked == 0 || opened < marked || is_itself_marker) return;
  const bool is_directory = file.type == FileType::kDirectory;
  if (is_directory ? !has_vouched_below(file, marked) : !is_vouched(file, marked)) return;
  directory->xattrs[std::string(kXattrOutdated)] = "1";
}

bool OutdatedMarkers::has_vouched_below(const File& directory, std::uint64_t marked) const {
  std::vector<const File*> todo{&directory};
  while (!todo.empty()) {
    const File& at = *todo.back();
    todo.pop_back();
    for (const auto& [name, id] : at.as_directory.children) {
      const File& child = *catalog_.files.file(id);
      if (child.type == FileType::kDirectory) todo.push_back(&child);
      if (is_vouched(child, marked)) return true;
    }
  }
  return false;
}

void OutdatedMarkers::note_committed(const File& file) {
  if (!has_sets() || !file.parent) return;
  note_named(file.parent, file.name);
  for (const Link& link : file.links) note_named(link.parent, link.name);
}

void OutdatedMarkers::note_named(FileId folder, std::string_view name) {
  if (!has_sets()) return;
  if (is_marker(*catalog_.files.file(folder), name)) forget(*catalog_.files.find(folder));
}

void OutdatedMarkers::forget(File& directory) {
  directory.xattrs.erase(std::string(kXattrOutdated));
}

void OutdatedMarkers::withdraw_for(const File& file) {
  if (!has_sets() || !file.parent) return;
  withdraw(file, *catalog_.files.file(file.parent), file.name);
  for (const Link& link : file.links) {
    withdraw(file, *catalog_.files.file(link.parent), link.name);
  }
}

void OutdatedMarkers::withdraw_for_loss(const File& file, const File& folder,
                                        std::string_view name) {
  if (!has_sets()) return;
  bool is_there = file.in_drain || file.stale_in_drain;
  if (file.parent != folder.id || file.name != name) {
    is_there = std::ranges::any_of(file.links, [&](const Link& link) {
      const bool is_name = link.parent == folder.id && link.name == name;
      return is_name && (link.in_drain || link.stale_in_drain);
    });
  }
  if (is_there) withdraw(file, folder, name);
}

/// `changed` changes in the drain directory under that name.
void OutdatedMarkers::withdraw(const File& changed, const File& folder, std::string_view name) {
  const File* const directory = set_of(folder.id);
  if (directory == nullptr || is_marker(folder, name)) return;
  const bool is_outdated = directory->xattrs.contains(std::string(kXattrOutdated));
  each_marker(*directory, [&](File& marker, std::string_view marker_name) {
    if (&marker == &changed) return;
    // A writer had the file open at the marker's commit, and has stored it after the marker's drain.
    const bool comes_late = is_vouched(changed, marker.newest.sequence) &&
                            changed.newest.sequence > marker.newest.sequence;
    withdraw_marker(marker, *directory, marker_name, is_outdated || comes_late);
  });
}

/// Takes the marker's name away in the drain directory, if it has an outdated marker there, or a
/// marker older than the pool's. A drained marker stays there under a number: it comes back without
/// a copy if a user says that the directory is whole.
void OutdatedMarkers::withdraw_marker(File& marker, const File& directory, std::string_view name,
                                      bool is_outdated) {
  const bool is_first = marker.parent == directory.id && marker.name == name;
  const auto link = std::ranges::find_if(marker.links, [&](const Link& other) {
    return other.parent == directory.id && other.name == name;
  });
  if (!is_first && link == marker.links.end()) return;
  const bool in_drain = is_first ? marker.in_drain : link->in_drain;
  bool& stale = is_first ? marker.stale_in_drain : link->stale_in_drain;
  const bool goes = stale || (in_drain && (is_outdated || !marker.newest.drained));
  if (!goes) return;
  // The pool's own link must not name a set without a marker.
  catalog_.leave_drained(*catalog_.files.find(directory.id), name, kAfterAllCommits);
  const std::string path = is_first ? catalog_.files.path(marker) : catalog_.files.path(*link);
  stale = false;
  if (!in_drain) {
    catalog_.mirror.add(msg::MirrorKind::kUnlink, marker, path);
    return;
  }
  links_.make_first(marker, directory.id, name);
  catalog_.withhold(marker, path);
}

}  // namespace stdchk::manager
