#include "manager/drain/held_names.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "manager/drain/name_mirror.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kChangesScannedMax = 1000;

/// Returns true for a change that may give or take names of a set.
bool changes_names(const msg::MirrorChange& change) {
  return change.kind != msg::MirrorKind::kAttributes && change.kind != msg::MirrorKind::kSetAside;
}

}  // namespace

bool HeldNames::is_due(FileId link) const {
  const File* const file = pool_.state().file(link);
  return file != nullptr && file->type == FileType::kSymlink && file->parent && !sets_.holds(*file);
}

void HeldNames::run() {
  const auto& held = pool_.state().mirror().held();
  std::vector<FileId> due;
  std::ranges::copy_if(held, std::back_inserter(due), [this](FileId id) { return is_due(id); });
  for (const FileId id : due) pool_.execute(NameHeld{id}, [](const Result<Affected>&) {});
  std::erase_if(failed_, [this](const auto& entry) {
    const File* const file = pool_.state().file(entry.first);
    return file == nullptr || file->newest.aside != entry.second;
  });
}

std::uint64_t HeldNames::pending(FileId below) const {
  const State& state = pool_.state();
  const auto counts = [&](FileId id) {
    return (below == kRootFile || state.files().is_below(id, below)) && is_due(id);
  };
  return static_cast<std::uint64_t>(std::ranges::count_if(state.mirror().held(), counts));
}

bool HeldNames::waits_for_changes(const File& file) const {
  const State& state = pool_.state();
  const auto& queue = state.mirror_queue();
  if (queue.empty()) return false;
  const FileId scope = sets_.directories().scope_of(file);
  if (!scope) return false;
  if (queue.size() > kChangesScannedMax) return true;
  const std::string path = state.path(*state.file(scope));
  const auto is_in = [&](const std::string& changed) {
    return !changed.empty() && (path.empty() || same_or_below(changed, path));
  };
  return std::ranges::any_of(queue, [&](const auto& entry) {
    const msg::MirrorChange& change = entry.second;
    // A link's other path is its target.
    const bool moves =
        change.kind == msg::MirrorKind::kRename || change.kind == msg::MirrorKind::kLink;
    return changes_names(change) && change.file != file.id &&
           (is_in(change.path) || (moves && is_in(change.other_path)));
  });
}

std::uint64_t HeldNames::staged_number(const File& file) const {
  if (!file.newest.staged || file.newest.drained) return 0;
  const auto failed = failed_.find(file.id);
  return failed != failed_.end() && failed->second == file.newest.aside ? 0 : file.newest.aside;
}

}  // namespace stdchk::manager
