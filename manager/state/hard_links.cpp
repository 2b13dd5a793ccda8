#include "manager/state/hard_links.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/assert.h"

namespace stdchk::manager {

Link& HardLinks::add(File& file, File& parent, std::string_view name) {
  parent.as_directory.children.emplace(name, file.id);
  Link& made = file.links.emplace_back(Link{parent.id, std::string(name)});
  if (const auto image = catalog_.names().image_of(file, made)) {
    catalog_.generations.add(parent.id, *image, file.newest.written);
  }
  return made;
}

std::vector<Link>::iterator HardLinks::find(File& file, FileId parent, std::string_view name) {
  const auto link = std::ranges::find_if(
      file.links, [&](const Link& other) { return other.parent == parent && other.name == name; });
  STDCHK_ASSERT(link != file.links.end());
  return link;
}

void HardLinks::remove(File& file, File& parent, std::string_view name, bool mirrors) {
  const auto link = find(file, parent.id, name);
  if (mirrors && (link->in_drain || link->stale_in_drain)) {
    catalog_.leave_drained(parent, name, kAfterAllCommits);
    catalog_.mirror.add(msg::MirrorKind::kUnlink, file, files_.path(*link));
  }
  if (const auto image = catalog_.names().image_of(file, *link)) {
    catalog_.generations.on_content_lost(parent.id, *image, file.newest.content(),
                                         catalog_.sequence);
    catalog_.generations.remove(parent.id, *image);
  }
  parent.as_directory.children.erase(link->name);
  file.links.erase(link);
}

void HardLinks::make_first(File& file, FileId parent, std::string_view name) {
  if (file.parent == parent && file.name == name) return;
  const auto link = find(file, parent, name);
  if (file.in_drain && !link->in_drain) {
    catalog_.mirror.held().contains(file.id) ? catalog_.set_aside(file) : mirror(file, *link);
  }
  std::swap(file.parent, link->parent);
  std::swap(file.name, link->name);
  std::swap(file.in_drain, link->in_drain);
  std::swap(file.stale_in_drain, link->stale_in_drain);
}

void HardLinks::give_next_name(File& file) {
  if (file.parent || file.links.empty()) return;
  Link next = std::move(file.links.back());
  file.links.pop_back();
  file.parent = next.parent;
  file.name = std::move(next.name);
  file.in_drain = next.in_drain;
  file.stale_in_drain = next.stale_in_drain;
  catalog_.commits.add(file);
}

void HardLinks::mirror_lost_name(File& file) {
  if (file.type == FileType::kDirectory) {
    catalog_.mirror.add(msg::MirrorKind::kRemoveDirectory, file, files_.path(file));
    return;
  }
  keep_for_next_name(file);
  catalog_.mirror.add(msg::MirrorKind::kUnlink, file, files_.path(file));
}

void HardLinks::keep_for_next_name(File& file) {
  if (file.links.empty() || catalog_.mirror.held().contains(file.id))
    return catalog_.set_aside(file);
  Link& next = file.links.back();
  if (file.in_drain && !next.in_drain) mirror(file, next);
}

void HardLinks::mirror_all(File& file) {
  for (Link& link : file.links) mirror(file, link);
}

void HardLinks::mirror_missing(File& file) {
  for (Link& link : file.links) {
    if (!link.in_drain) mirror(file, link);
  }
}

void HardLinks::leave_drained(const File& file, std::uint64_t written) {
  if (file.parent) catalog_.leave_drained(*files_.find(file.parent), file.name, written);
  for (const Link& link : file.links) {
    catalog_.leave_drained(*files_.find(link.parent), link.name, written);
  }
}

void HardLinks::mirror(const File& file, Link& link) {
  link.in_drain = true;
  link.stale_in_drain = false;
  catalog_.mirror.add(msg::MirrorKind::kLink, file, files_.path(file), files_.path(link));
}

}  // namespace stdchk::manager
