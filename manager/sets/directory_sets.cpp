#include "manager/sets/directory_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manager/sets/lost_writer.h"

namespace stdchk::manager {
namespace {

/// Calls `visit(file)` for all that is below the directory; a directory comes after its entries.
template <class Visit>
void for_each_below(const State& state, const File& directory, const Visit& visit) {
  struct Level {
    const File* at;
    std::map<std::string, FileId, std::less<>>::const_iterator next;
  };
  std::vector<Level> levels{{&directory, directory.as_directory.children.begin()}};
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next == level.at->as_directory.children.end()) {
      if (levels.size() > 1) visit(*level.at);
      levels.pop_back();
      continue;
    }
    const File& child = *state.file((level.next++)->second);
    if (child.type == FileType::kDirectory) {
      levels.push_back({&child, child.as_directory.children.begin()});
    } else {
      visit(child);
    }
  }
}

bool is_marker(const File& file, FileId directory, const NamePatterns& markers) {
  return file.parent == directory && markers.match(file.name);
}

/// Returns true for a file that the drain still has to take.
bool is_undrained(const File& file) {
  return file.type == FileType::kRegular && file.newest.version > 0 && !file.newest.drained;
}

/// Returns true when the target of a symbolic link leads to, or below, a directory of that name.
bool is_target(std::string_view target, std::string_view name) {
  while (!target.empty()) {
    const std::size_t slash = target.find('/');
    if (target.substr(0, slash) == name) return true;
    target.remove_prefix(slash == target.npos ? target.size() : slash + 1);
  }
  return false;
}

/// Returns true when a writer of the directory has ended without a commit, and had its file open
/// when the marker was committed.
bool has_lost_writer(const State& state, const File& directory, const NamePatterns& markers) {
  const auto text = directory.xattrs.find(LostWriter::kXattr);
  if (text == directory.xattrs.end()) return false;
  const auto lost = LostWriter::parse(text->second);
  if (!lost) return false;
  std::uint64_t newest = 0;
  for (const auto& [name, id] : directory.as_directory.children) {
    const File& file = *state.file(id);
    if (markers.match(name)) newest = std::max(newest, file.newest.sequence);
  }
  return lost->had_open_at(newest);
}

}  // namespace

void DirectorySets::changed(FileId folder) {
  std::erase_if(waits_for_, [&](const auto& entry) { return state_.file(entry.first) == nullptr; });
  if (scanned_.empty()) return;
  if (const FileId directory = state_.set_names().directory(folder)) scanned_.erase(directory);
  // The folder's policy may have changed, or the directory is gone.
  std::erase_if(scanned_, [&](const auto& entry) {
    const File* const directory = state_.file(entry.first);
    return directory == nullptr || directory->parent == folder;
  });
}

DirectorySets::Scanned DirectorySets::scan(const File& directory, const SetRules& rules) const {
  const NamePatterns markers(rules.marker);
  Scanned out;
  ImageSet& set = out.set;
  set.name = directory.name;
  set.application = rules.set_names;
  set.directory = directory.id;
  set.newest_ns = directory.ctime_ns;
  for_each_below(state_, directory, [&](const File& file) {
    if (file.type != FileType::kRegular || file.newest.version == 0) return;
    ++(is_marker(file, directory.id, markers) ? set.others : set.images);
    set.drained += file.newest.drained ? 1 : 0;
    out.parts += file.newest.partial ? 1 : 0;
    set.bytes += file.newest.size_bytes;
    set.sequence = std::max(set.sequence, file.newest.sequence);
    if (set.members.empty()) out.first_sequence = file.newest.sequence;
    out.first_sequence = std::min(out.first_sequence, file.newest.sequence);
    set.newest_ns = std::max(set.newest_ns, file.ctime_ns);
    set.members.push_back(file.id);
  });
  return out;
}

/// Returns true when a file of the set was committed before `pointer`. Requires that it was
/// scanned.
bool DirectorySets::was_begun(const ImageSet& set, std::uint64_t pointer) const {
  return !set.members.empty() && scanned_.at(set.directory).first_sequence < pointer;
}

/// Marks the sets that a pointer written at `pointer` may name. A program writes the pointer behind
/// the set, or before the last file of the set. `sets`: the oldest first.
void DirectorySets::mark_named(std::vector<ImageSet>& sets, std::uint64_t pointer) const {
  ImageSet* begun = nullptr;
  ImageSet* whole = nullptr;
  for (ImageSet& set : sets) {
    if (was_begun(set, pointer)) begun = &set;
    if (set.sequence < pointer && set.is_whole_directory) whole = &set;
  }
  for (ImageSet* const set : {begun, whole}) {
    if (set != nullptr) set->is_named = true;
  }
}

/// Marks the sets that symbolic links among the pointers name.
void DirectorySets::mark_linked(const File& folder, const SetRules& rules,
                                std::vector<ImageSet>& sets) const {
  const NamePatterns pointers(rules.pointer);
  if (pointers.empty()) return;
  for (const auto& [name, id] : folder.as_directory.children) {
    const File& link = *state_.file(id);
    if (link.type != FileType::kSymlink || !pointers.match(name)) continue;
    for (ImageSet& set : sets) set.is_named = set.is_named || is_target(link.target, set.name);
  }
}

/// Returns the directories in which a session writes a file now.
std::set<FileId> DirectorySets::sets_being_written() const {
  std::set<FileId> out;
  for (const auto& [id, session] : sessions_.all()) {
    const File* const file = state_.file(session.file);
    if (file == nullptr) continue;
    const FileId folder = file->parent    ? file->parent
                          : file->pending ? file->pending->parent
                                          : FileId{};
    if (const FileId directory = state_.set_names().directory(folder)) out.insert(directory);
  }
  return out;
}

/// Returns the sequence of the newest commit of each pointer in the folder.
std::vector<std::uint64_t> DirectorySets::pointers_of(const File& folder,
                                                      const SetRules& rules) const {
  const NamePatterns pointers(rules.pointer);
  std::vector<std::uint64_t> out;
  if (pointers.empty()) return out;
  for (const auto& [name, id] : folder.as_directory.children) {
    const File& file = *state_.file(id);
    if (file.type != FileType::kRegular || file.newest.version == 0) continue;
    if (pointers.match(name)) out.push_back(file.newest.sequence);
  }
  return out;
}

/// Decides whether the directory is whole. `pointer`: the newest commit of a pointer beside it.
void DirectorySets::judge(ImageSet& set, const SetRules& rules, std::uint64_t wanted,
                          std::uint64_t pointer) const {
  const File& directory = *state_.file(set.directory);
  const std::string_view marker = rules.marker;
  const bool is_committed = directory.xattrs.contains(std::string(kXattrCommitted));
  set.is_whole_directory = false;
  set.problem.clear();
  if (set.members.empty()) {
    set.problem = "it has no files";
  } else if (set.in_use) {
    set.problem = "a file in it is being written";
  } else if (is_committed) {
    set.is_whole_directory = true;
  } else if (const std::uint64_t parts = scanned_.at(set.directory).parts; parts > 0) {
    set.problem = fmt::format("{} files in it were stored by fsync, and not closed", parts);
  } else if (!marker.empty() && set.others == 0) {
    set.problem = fmt::format("no file in it matches marker={}", marker);
  } else if (!marker.empty() && has_lost_writer(state_, directory, NamePatterns(marker))) {
    set.problem = "a writer that had a file in it open ended after the marker, without a commit";
  } else if (wanted > set.images) {
    set.problem = fmt::format("it has {} of {} files", set.images, wanted);
  } else if (!marker.empty() || wanted > 0) {
    set.is_whole_directory = true;
  } else if (pointer > 0) {
    set.is_whole_directory = set.sequence < pointer;
    if (!set.is_whole_directory) set.problem = "no pointer was written after it";
  } else {
    set.problem = "nothing says that it is whole: set a marker or images, or use stdchk set commit";
  }
}

std::vector<ImageSet> DirectorySets::sets_of(const File& folder, std::uint64_t wanted) {
  std::vector<ImageSet> sets;
  const SetRules rules = state_.set_names().set_rules(folder);
  const std::set<FileId> written = sets_being_written();
  const std::vector<std::uint64_t> pointers = pointers_of(folder, rules);
  const auto newest_pointer = std::ranges::max_element(pointers);
  const std::uint64_t pointer = newest_pointer == pointers.end() ? 0 : *newest_pointer;
  for (const auto& [name, id] : folder.as_directory.children) {
    const File& directory = *state_.file(id);
    if (directory.type != FileType::kDirectory || state_.set_names().directory(id) != id) continue;
    auto known = scanned_.find(id);
    if (known == scanned_.end()) known = scanned_.emplace(id, scan(directory, rules)).first;
    ImageSet set = known->second.set;
    set.in_use = written.contains(id);
    set.pinned = folder.xattrs.contains(std::string(kXattrPin) + set.name);
    judge(set, rules, wanted, pointer);
    sets.push_back(std::move(set));
  }
  std::ranges::stable_sort(sets, {}, &ImageSet::sequence);
  for (const std::uint64_t each : pointers) mark_named(sets, each);
  mark_linked(folder, rules, sets);
  return sets;
}

bool DirectorySets::in_use(const File& directory) const {
  bool used = !directory.as_directory.pending_children.empty();
  for_each_below(state_, directory, [&](const File& file) {
    used = used || file.keeps > 0 || !file.as_directory.pending_children.empty();
  });
  return used;
}

std::vector<DirectorySets::Name> DirectorySets::removal_of(const File& directory) const {
  const SetRules rules = state_.set_names().set_rules(directory);
  const NamePatterns markers(rules.marker);
  std::vector<Name> names;
  std::size_t first = 0;
  for_each_below(state_, directory, [&](const File& file) {
    const bool is_first = is_marker(file, directory.id, markers);
    const auto at = is_first ? names.begin() + static_cast<std::ptrdiff_t>(first++) : names.end();
    names.insert(at, {file.parent, file.name, file.type == FileType::kDirectory});
  });
  names.push_back({directory.parent, directory.name, true});
  return names;
}

/// Returns a file of the directory that is drained before the marker; none when the marker may go.
/// Returns the marker's own id while a file of the directory is being written. Files that the
/// policy does not drain count, too: without them the directory is not whole.
FileId DirectorySets::marker_waits_for(FileId marker, FileId directory,
                                       const NamePatterns& markers) const {
  for (const auto& [sequence, id] : state_.commits().undrained()) {
    const File& file = *state_.file(id);
    if (id == marker || is_marker(file, directory, markers)) continue;
    if (state_.files().is_below(id, directory)) return id;
  }
  return sets_being_written().contains(directory) || has_part(directory) ? marker : FileId{};
}

/// Returns true when the directory is not whole because a writer has not closed its file.
bool DirectorySets::has_part(FileId directory) const {
  const File& at = *state_.file(directory);
  if (at.xattrs.contains(std::string(kXattrCommitted))) return false;
  bool any = false;
  for_each_below(state_, at, [&](const File& file) { any = any || file.newest.partial; });
  return any;
}

/// Returns a file that is drained before the pointer; none when the drain may take the pointer.
/// Returns the pointer's own id while the set that it names is not whole. Files that the policy
/// does not drain do not count: the pointer would wait for ever. `written`: the commit that wrote
/// the pointer.
FileId DirectorySets::pointer_waits_for(FileId pointer, const File& folder, std::uint64_t written,
                                        const Skips& skips) {
  const auto is_of_folder = [&](const File& file) {
    const FileId directory = state_.set_names().directory(file.id);
    return directory && state_.file(directory)->parent == folder.id;
  };
  for (const auto& [sequence, id] : state_.commits().undrained()) {
    if (sequence > written) break;
    const File& file = *state_.file(id);
    if (id != pointer && is_of_folder(file) && !skips(file)) return id;
  }
  // The pointer names the newest set that was begun before the pointer was written.
  const ImageSet* named = nullptr;
  const std::uint64_t wanted = state_.files().policy(folder).get(PolicyKey::kImages);
  const std::vector<ImageSet> sets = sets_of(folder, wanted);
  for (const ImageSet& set : sets) {
    if (was_begun(set, written)) named = &set;
  }
  if (named == nullptr) return {};
  const bool can_be_whole = !state_.set_names().set_rules(folder).marker.empty() || wanted > 0;
  return set_waits_for(*named, pointer, can_be_whole);
}

/// Returns a file of the set that is drained before its pointer. Returns the pointer's own id while
/// the set is not whole.
FileId DirectorySets::set_waits_for(const ImageSet& set, FileId pointer, bool can_be_whole) const {
  const bool is_part = scanned_.at(set.directory).parts > 0 && !set.is_whole_directory;
  if (set.in_use || is_part || (can_be_whole && !set.is_whole_directory)) return pointer;
  const auto undrained =
      std::ranges::find_if(set.members, [&](FileId id) { return is_undrained(*state_.file(id)); });
  return undrained == set.members.end() ? FileId{} : *undrained;
}

/// As pointer_waits_for(), for a symbolic link. Its target says which set it names.
FileId DirectorySets::link_waits_for(FileId link, const File& folder, std::string_view target) {
  const std::uint64_t wanted = state_.files().policy(folder).get(PolicyKey::kImages);
  const bool can_be_whole = !state_.set_names().set_rules(folder).marker.empty() || wanted > 0;
  for (const ImageSet& set : sets_of(folder, wanted)) {
    if (is_target(target, set.name)) return set_waits_for(set, link, can_be_whole);
  }
  return {};
}

/// Returns a file that is drained before `file` gets that name; none when it may have the name.
FileId DirectorySets::waits_for(const File& file, const File& folder, std::string_view name,
                                std::uint64_t written, const Skips& skips) {
  const SetPart part = state_.set_names().part(folder, name);
  if (part == SetPart::kPointer) {
    return file.type == FileType::kSymlink ? link_waits_for(file.id, folder, file.target)
                                           : pointer_waits_for(file.id, folder, written, skips);
  }
  if (part == SetPart::kNone || file.type != FileType::kRegular) return part_waits(file, folder);
  const SetRules rules = state_.set_names().set_rules(folder);
  return marker_waits_for(file.id, folder.id, NamePatterns(rules.marker));
}

/// Returns the file's id if the file is a part of a member, in a directory without a marker. The
/// next pool judges such a directory by the number of files.
FileId DirectorySets::part_waits(const File& file, const File& folder) const {
  if (!file.newest.partial || !state_.set_names().directory(folder.id)) return {};
  return state_.set_names().set_rules(folder).marker.empty() ? file.id : FileId{};
}

bool DirectorySets::holds(const File& file, const Skips& skips) {
  if (!state_.set_names().has_directories() || !file.parent) return false;
  const auto known = waits_for_.find(file.id);
  if (known != waits_for_.end()) {
    const File* const first = known->second == file.id ? nullptr : state_.file(known->second);
    if (first != nullptr && first->parent && is_undrained(*first) && !skips(*first)) return true;
    waits_for_.erase(known);
  }
  const std::uint64_t written = file.newest.sequence;
  FileId first = waits_for(file, *state_.file(file.parent), file.name, written, skips);
  for (const Link& link : file.links) {
    if (!first) first = waits_for(file, *state_.file(link.parent), link.name, written, skips);
  }
  if (!first) return false;
  waits_for_[file.id] = first;
  return true;
}

bool DirectorySets::would_hold(const File& file, const File& folder, std::string_view name,
                               const Skips& skips) {
  if (!state_.set_names().has_directories()) return false;
  return static_cast<bool>(waits_for(file, folder, name, kAfterAllCommits, skips));
}

bool DirectorySets::is_unfinished(const File& directory) const {
  const auto is_below = [&](FileId id) { return state_.files().is_below(id, directory.id); };
  const auto& undrained = state_.commits().undrained();
  if (std::ranges::any_of(undrained, is_below, &CommitLists::List::value_type::second)) return true;
  return std::ranges::any_of(sessions_.all(), [&](const auto& session) {
    const File* const file = state_.file(session.second.file);
    return file != nullptr &&
           is_below(file->pending && !file->parent ? file->pending->parent : file->id);
  });
}

FileId DirectorySets::scope_of(const File& file) const {
  if (!state_.set_names().has_directories() || !file.parent) return {};
  FileId scope;
  const auto add = [&](FileId folder, std::string_view name) {
    if (state_.set_names().part(*state_.file(folder), name) != SetPart::kNone) scope = folder;
  };
  add(file.parent, file.name);
  for (const Link& link : file.links) add(link.parent, link.name);
  return scope;
}

}  // namespace stdchk::manager
