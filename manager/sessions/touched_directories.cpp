#include "manager/sessions/touched_directories.h"

#include <algorithm>

#include "manager/state/folders_of.h"

namespace stdchk::manager {

void TouchedDirectories::add(FileId directory) {
  if (!directory || std::ranges::find(directories_, directory) != directories_.end()) return;
  directories_.push_back(directory);
}

void TouchedDirectories::entry(FileId parent, std::string_view name) {
  add(parent);
  const auto directory = state_.directory(parent);
  if (!directory) return;
  const auto& children = (*directory)->as_directory.children;
  const auto child = children.find(name);
  if (child != children.end()) file(child->second);
}

void TouchedDirectories::file(FileId id) {
  const File* const at = state_.file(id);
  if (at == nullptr) return;
  if (at->type == FileType::kDirectory) add(id);
  if (at->pending) add(at->pending->parent);
  for_each_folder(*at, [this](FileId folder) { add(folder); });
}

void TouchedDirectories::listing(FileId directory) {
  add(directory);
  const auto folder = state_.directory(directory);
  if (!folder) return;
  const NameLeases& leases = state_.name_leases();
  const auto& children = (*folder)->as_directory.children;
  if (children.size() < leases.directories().size()) {
    for (const auto& [name, child] : children) {
      if (leases.holder(child) != 0) directories_.push_back(child);
    }
    return;
  }
  for (const auto& [leased, holder] : leases.directories()) {
    const File* const at = state_.file(leased);
    if (at != nullptr && at->parent == directory) directories_.push_back(leased);
  }
}

void TouchedDirectories::below(FileId directory) {
  for (const auto& [leased, holder] : state_.name_leases().directories()) {
    if (leased == directory || state_.files().is_below(leased, directory)) add(leased);
  }
}

void TouchedDirectories::moved(FileId parent, std::string_view name) {
  entry(parent, name);
  const auto found = state_.lookup(parent, name, {});
  if (found && (*found)->type == FileType::kDirectory) below((*found)->id);
}

}  // namespace stdchk::manager
