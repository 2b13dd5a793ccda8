#include "manager/state/catalog.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/drain_manifest.h"
#include "core/policy/image_name.h"
#include "manager/state/pending_names.h"

namespace stdchk::manager {
namespace {

/// Returns the value of the folder's own rule; nothing without a valid one.
std::optional<std::string> rule_of(const File& folder, std::string_view key) {
  const auto found = folder.xattrs.find(std::string(kXattrRule) + std::string(key));
  // A user may have set the attribute where no stdchk looked at its value.
  if (found == folder.xattrs.end() || !check_rule(key, found->second)) return std::nullopt;
  return found->second;
}

}  // namespace

void Catalog::link(File& file, File& parent, std::string_view name) {
  files.link(file, parent, name);
  if (const auto image = names().image_of(file)) {
    generations.add(parent.id, *image, file.newest.written);
  }
  commits.add(file);
}

void Catalog::unlink(File& file) {
  commits.remove(file);
  if (const auto image = names().image_of(file)) generations.remove(file.parent, *image);
  files.unlink(file);
}

void Catalog::link_again(File& file, File& parent, std::string_view name, bool elsewhere,
                         std::uint64_t replaced) {
  if (file.type == FileType::kRegular && file.newest.version > 0 &&
      names().image_name(parent.id, name)) {
    // A session opened for another folder, or before the replaced content was written, says nothing
    // about the sets here.
    if (elsewhere || replaced > file.newest.opened) file.newest.opened = sequence;
    file.newest.sequence = file.newest.written = ++sequence;
  }
  link(file, parent, name);
  note_image(file, replaced, 0);
}

void Catalog::note_loss(const File& file) {
  if (const auto image = names().image_of(file)) {
    generations.on_content_lost(file.parent, *image, file.newest.content(), sequence);
  }
}

void Catalog::note_image(const File& file, std::uint64_t replaced, std::uint64_t replacing) {
  const auto image = names().image_of(file);
  if (!image || file.newest.version == 0) return;
  SetGenerations::Write write{file.newest.opened, replaced, 0, replacing, file.newest.sequence};
  if (generations.has_later(file.parent, *image)) write.later = later_content(file, *image);
  generations.write(file.parent, *image, write);
}

/// Returns the newest content of later timesteps of this rank that existed when `file` was opened.
std::uint64_t Catalog::later_content(const File& file, const ImageName& image) const {
  std::uint64_t newest = 0;
  const auto& children = files.file(file.parent)->as_directory.children;
  const SetNaming& pattern = *names().naming(*files.file(file.parent));
  const std::string_view prefix = pattern.until_timestep(file.name);
  for (auto child = children.lower_bound(prefix);
       child != children.end() && child->first.starts_with(prefix); ++child) {
    const auto other = pattern.parse(child->first);
    if (!other || other->node != image.node || other->timestep <= image.timestep) continue;
    const std::uint64_t content = files.file(child->second)->newest.content();
    if (content <= file.newest.opened) newest = std::max(newest, content);
  }
  return newest;
}

void Catalog::erase_if_unused(File& file) {
  if (file.parent || file.keeps > 0 || file.id == kRootFile) return;
  if (file.pending) PendingNames(files).drop(file.id);
  mirror.unhold(file.id);
  contents.drop(file.newest);
  for (auto& [number, old] : file.older) contents.drop(old);
  if (file.as_directory.rules && file.as_directory.rules->by_directory == true)
    --directory_set_folders;
  files.erase(file.id);
}

void Catalog::set_newest(File& file, VersionData next) {
  commits.remove(file);
  VersionData old = std::move(file.newest);
  file.newest = std::move(next);
  if (old.pins > 0) {
    const Version number = old.version;
    file.older.emplace(number, std::move(old));
  } else {
    contents.drop(old);
  }
  commits.add(file);
}

void Catalog::note_evicted(VersionData& version) const {
  const ChunkTable& chunks = contents.chunks();
  version.evicted = std::ranges::none_of(
      version.slices, [&](const PackedSlice& slice) { return chunks.has_copies(slice.chunk); });
}

void Catalog::unkeep(FileId id) {
  File* kept = files.find(id);
  STDCHK_ASSERT(kept != nullptr && kept->keeps > 0);
  --kept->keeps;
  erase_if_unused(*kept);
}

void Catalog::keep(FileId id) {
  File* kept = files.find(id);
  STDCHK_ASSERT(kept != nullptr);
  ++kept->keeps;
}

Status Catalog::pin(FileId id, Version number) {
  auto* pinned = const_cast<VersionData*>(files.version(id, number));
  if (pinned == nullptr) return fail(Code::kStale, "manager.pin");
  ++pinned->pins;
  keep(id);
  return {};
}

void Catalog::unpin(FileId id, Version number) {
  auto* pinned = const_cast<VersionData*>(files.version(id, number));
  STDCHK_ASSERT(pinned != nullptr && pinned->pins > 0);
  File* of = files.find(id);
  if (--pinned->pins == 0 && pinned != &of->newest) {
    contents.drop(*pinned);
    of->older.erase(number);
  }
  unkeep(id);
}

void Catalog::set_older_aside(FileId id, std::uint64_t number) {
  File* of = files.find(id);
  if (of == nullptr) return;
  for (auto& [version, older] : of->older) {
    if (older.aside == 0 && contents.needs_drained(older)) older.aside = number;
  }
}

void Catalog::set_aside(File& file) { set_aside(file, files.path(file)); }

void Catalog::set_aside(File& file, const std::string& path) {
  if (!file.in_drain || file.type != FileType::kRegular) return;
  mirror.add(msg::MirrorKind::kSetAside, file, path);
  if (contents.needs_drained(file.newest)) file.newest.aside = mirror.newest();
  set_older_aside(file.id, mirror.newest());
}

void Catalog::withhold(File& file, const std::string& path) {
  if (!file.in_drain) return;
  if (file.type == FileType::kSymlink) {
    mirror.add(msg::MirrorKind::kUnlink, file, path);
    return hold(file);
  }
  if (file.type != FileType::kRegular) return;
  if (contents.needs_drained(file.newest)) {
    stage(file, path);
  } else {
    set_aside(file, path);
    mirror.add(msg::MirrorKind::kUnlink, file, path);
  }
  file.in_drain = false;
}

void Catalog::leave_stale(File& file) {
  if (!file.in_drain) return;
  if (file.type == FileType::kSymlink) return hold(file);
  if (file.type != FileType::kRegular) return;
  const bool was_drained = file.newest.drained;
  if (was_drained) drain_again(file);
  if (contents.needs_drained(file.newest)) {
    stage(file, files.path(file));
    file.newest.staged = was_drained;
  } else {
    set_aside(file, files.path(file));
  }
  file.in_drain = false;
}

/// Moves the file in the drain directory to a number, under which the drain finds it.
void Catalog::stage(File& file, const std::string& path) {
  mirror.add(msg::MirrorKind::kRename, file, path);
  file.newest.aside = mirror.newest();
  file.newest.staged = file.newest.drained;
  if (file.newest.drained) return drain_again(file);
  set_older_aside(file.id, mirror.newest());
}

void Catalog::drain_again(File& file) {
  commits.remove(file);
  contents.mark_undrained(file.newest);
  file.newest.drained = file.newest.evicted = false;
  commits.add(file);
}

void Catalog::hold(File& link) {
  link.in_drain = false;
  mirror.hold(link.id);
}

void Catalog::add_drained(File& folder, const DrainedSet& set) {
  if (set.name.empty()) return;
  std::vector<DrainedSet>& sets = folder.as_directory.drained_sets;
  const std::string named = sets.empty() ? std::string() : sets.back().name;
  std::erase_if(sets, [&](const DrainedSet& other) { return other.name == set.name; });
  const auto after = std::ranges::upper_bound(sets, set.sequence, {}, &DrainedSet::sequence);
  sets.insert(after, set);
  if (sets.size() > limits::kDrainedSetsMax) sets.erase(sets.begin());
  if (sets.back().name != named) mirror_latest(folder);
}

void Catalog::leave_drained(File& folder, std::string_view name, std::uint64_t written) {
  if (folder.as_directory.drained_sets.empty() && directory_set_folders == 0) return;
  const auto place = names().set_of(folder.id, name);
  if (!place) return;
  File& holder = *files.find(place->first);
  std::vector<DrainedSet>& sets = holder.as_directory.drained_sets;
  // Earlier versions named the set without the zeros of its images.
  const auto image = names().image_name(folder.id, name);
  const std::string plain = image ? set_name(image->application, image->timestep) : std::string();
  const auto set = std::ranges::find_if(
      sets, [&](const DrainedSet& one) { return one.name == place->second || one.name == plain; });
  if (set == sets.end() || written <= set->sequence) return;
  const bool named = set + 1 == sets.end();
  sets.erase(set);
  if (named) mirror_latest(holder);
}

void Catalog::mirror_latest(File& folder) {
  const auto there = folder.as_directory.children.find(kLatestName);
  File* const link_file =
      there == folder.as_directory.children.end() ? nullptr : files.find(there->second);
  if (link_file != nullptr && link_file->type != FileType::kSymlink) return;
  const bool any = !folder.as_directory.drained_sets.empty();
  const std::string above = files.path(folder);
  const std::string at = above.empty() ? kLatestName : above + "/" + kLatestName;
  mirror.add(any ? msg::MirrorKind::kSymlink : msg::MirrorKind::kUnlink, folder, at,
             any ? folder.as_directory.drained_sets.back().name : std::string());
  if (link_file != nullptr) link_file->in_drain = any;
}

void Catalog::read_rules(File& folder) {
  if (folder.as_directory.rules && folder.as_directory.rules->by_directory == true)
    --directory_set_folders;
  folder.as_directory.rules = nullptr;
  OwnRules own;
  if (const auto kind = rule_of(folder, "set")) own.by_directory = *kind == "directory";
  own.set_names = rule_of(folder, "set-names");
  own.marker = rule_of(folder, "marker");
  own.pointer = rule_of(folder, "pointer");
  if (const auto series = rule_of(folder, "series")) own.series.emplace(*series);
  const bool any =
      own.by_directory || own.set_names || own.marker || own.pointer || own.series.has_value();
  if (!any) return;
  if (own.by_directory == true) ++directory_set_folders;
  folder.as_directory.rules = std::make_shared<const OwnRules>(std::move(own));
}

void Catalog::change_rules(File& folder) {
  const SetNaming* const naming_before = names().naming(folder);
  const bool had_none = naming_before == nullptr;
  const SetNaming read_before = had_none ? SetNaming() : *naming_before;
  read_rules(folder);
  const SetNaming* const now = names().naming(folder);
  const bool same = had_none ? now == nullptr : now != nullptr && *now == read_before;
  if (!same) read_names_again(folder);
  mirror_rules(folder);
}

void Catalog::mirror_rules(const File& folder) {
  // A root of an earlier version is not marked. Without a drain directory no change was repeated.
  if (!folder.in_drain && (folder.id != kRootFile || mirror.newest() == 0)) return;
  std::string text;
  for (const auto& [name, value] : folder.xattrs) {
    if (!name.starts_with(kXattrRule)) continue;
    const std::string_view key = std::string_view(name).substr(kXattrRule.size());
    if (!check_rule(key, value)) continue;
    if (!text.empty()) text += ' ';
    text += key == kRulePolicy ? value : std::string(key) + "=" + value;
  }
  const std::string above = files.path(folder);
  const std::string at = above.empty() ? kPolicyLinkName : above + "/" + kPolicyLinkName;
  if (text.size() > limits::kSymlinkBytesMax) {
    log::warning("the policy of {} is too long for the drain directory", above);
    return;
  }
  const auto kind = text.empty() ? msg::MirrorKind::kUnlink : msg::MirrorKind::kSymlink;
  mirror.add(kind, folder, at, std::move(text));
}

void Catalog::read_names_again(const File& folder) {
  std::vector<const File*> todo{&folder};
  while (!todo.empty()) {
    const File& at = *todo.back();
    todo.pop_back();
    generations.forget(at.id);
    for (const auto& [name, id] : at.as_directory.children) {
      const File& child = *files.file(id);
      if (child.type == FileType::kDirectory) todo.push_back(&child);
      // image_of(child) would read the first name, but `name` may be a further name.
      if (child.type != FileType::kRegular) continue;
      if (const auto image = names().image_name(at.id, name)) {
        generations.add(at.id, *image, child.newest.written);
      }
    }
  }
}

void Catalog::read_moved_names(const File& directory, const SetNaming* before) {
  const SetNaming* const now = names().naming(*files.file(directory.parent));
  const bool same = now == before || (now != nullptr && before != nullptr && *now == *before);
  if (!same) read_names_again(directory);
}

}  // namespace stdchk::manager
