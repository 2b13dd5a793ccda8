#include "manager/state/catalog.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "manager/state/pending_names.h"

namespace stdchk::manager {
namespace {

/// Returns the parts of the name, if the file is an image with a committed name.
std::optional<ImageName> image_of(const File& file) {
  if (!file.parent || file.type != FileType::kRegular) return std::nullopt;
  return parse_image_name(file.name);
}

}  // namespace

void Catalog::link(File& file, File& parent, std::string_view name) {
  files.link(file, parent, name);
  if (const auto image = image_of(file)) {
    generations.add(parent.id, *image, file.newest.written);
  }
  commits.add(file);
}

void Catalog::unlink(File& file) {
  commits.remove(file);
  if (const auto image = image_of(file)) generations.remove(file.parent, *image);
  files.unlink(file);
}

void Catalog::link_again(File& file, File& parent, std::string_view name, bool elsewhere,
                         std::uint64_t replaced) {
  if (file.type == FileType::kRegular && file.newest.version > 0 && parse_image_name(name)) {
    // A session opened for another folder, or before the replaced content was written, says nothing
    // about the sets here.
    if (elsewhere || replaced > file.newest.opened) file.newest.opened = sequence;
    file.newest.sequence = file.newest.written = ++sequence;
  }
  link(file, parent, name);
  note_image(file, replaced, 0);
}

void Catalog::note_loss(const File& file) {
  if (const auto image = image_of(file)) {
    generations.lose(file.parent, *image, file.newest.content(), sequence);
  }
}

void Catalog::note_image(const File& file, std::uint64_t replaced, std::uint64_t replacing) {
  const auto image = image_of(file);
  if (!image || file.newest.version == 0) return;
  SetGenerations::Write write{file.newest.opened, replaced, 0, replacing, file.newest.sequence};
  if (generations.has_later(file.parent, *image)) write.later = later_content(file, *image);
  generations.write(file.parent, *image, write);
}

/// Returns the newest content of later timesteps of this rank that existed when `file` was opened.
std::uint64_t Catalog::later_content(const File& file, const ImageName& image) const {
  std::uint64_t newest = 0;
  const auto& children = files.file(file.parent)->children;
  const std::string_view prefix = std::string_view(file.name).substr(0, file.name.rfind('T') + 1);
  for (auto child = children.lower_bound(prefix);
       child != children.end() && child->first.starts_with(prefix); ++child) {
    const auto other = parse_image_name(child->first);
    if (!other || other->timestep <= image.timestep) continue;
    const std::uint64_t content = files.file(child->second)->newest.content();
    if (content <= file.newest.opened) newest = std::max(newest, content);
  }
  return newest;
}

void Catalog::erase_if_unused(File& file) {
  if (file.parent || file.keeps > 0 || file.id == kRootFile) return;
  if (file.pending) PendingNames(files).drop(file.id);
  contents.drop(file.newest);
  for (auto& [number, old] : file.older) contents.drop(old);
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

void Catalog::set_aside(File& file) {
  if (!file.in_drain || file.type != FileType::kRegular) return;
  mirror.add(msg::MirrorKind::kSetAside, file, files.path(file));
  if (contents.needs_drained(file.newest)) file.newest.aside = mirror.newest();
  set_older_aside(file.id, mirror.newest());
}

void Catalog::add_drained(File& folder, const DrainedSet& set) {
  if (set.name.empty()) return;
  std::vector<DrainedSet>& sets = folder.drained_sets;
  const std::string named = sets.empty() ? std::string() : sets.back().name;
  std::erase_if(sets, [&](const DrainedSet& other) { return other.name == set.name; });
  const auto after = std::ranges::upper_bound(sets, set.sequence, {}, &DrainedSet::sequence);
  sets.insert(after, set);
  if (sets.size() > limits::kDrainedSetsMax) sets.erase(sets.begin());
  if (sets.back().name != named) mirror_latest(folder);
}

void Catalog::leave_drained(File& folder, std::string_view name, std::uint64_t written) {
  if (folder.drained_sets.empty()) return;
  const auto image = parse_image_name(name);
  if (!image) return;
  std::vector<DrainedSet>& sets = folder.drained_sets;
  const auto set =
      std::ranges::find(sets, set_name(image->application, image->timestep), &DrainedSet::name);
  if (set == sets.end() || written <= set->sequence) return;
  const bool named = set + 1 == sets.end();
  sets.erase(set);
  if (named) mirror_latest(folder);
}

void Catalog::mirror_latest(File& folder) {
  const auto there = folder.children.find(kLatestName);
  File* const link_file = there == folder.children.end() ? nullptr : files.find(there->second);
  if (link_file != nullptr && link_file->type != FileType::kSymlink) return;
  const bool any = !folder.drained_sets.empty();
  const std::string above = files.path(folder);
  const std::string at = above.empty() ? kLatestName : above + "/" + kLatestName;
  mirror.add(any ? msg::MirrorKind::kSymlink : msg::MirrorKind::kUnlink, folder, at,
             any ? folder.drained_sets.back().name : std::string());
  if (link_file != nullptr) link_file->in_drain = any;
}

}  // namespace stdchk::manager
