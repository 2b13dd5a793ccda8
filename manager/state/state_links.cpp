// Commands on hard links and special files.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "manager/state/state.h"

namespace stdchk::manager {
namespace {

bool is_special(FileType type) {
  return type == FileType::kFifo || type == FileType::kSocket ||
         type == FileType::kCharacterDevice || type == FileType::kBlockDevice;
}

/// Returns true when the drain directory gets special files of this type. It gets no devices: who
/// may make devices on the parallel file system is its administrator's decision.
bool drains(FileType type) { return type == FileType::kFifo || type == FileType::kSocket; }

}  // namespace

Result<Outcome> State::run(const AddNode& command) {
  if (!is_special(command.type)) return fail(Code::kInvalidArgument, "manager.mknod");
  STDCHK_TRY(check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, check_new_name(command.parent, command.name));
  File& made =
      add_file(command.id, command.type, command.mode, command.uid, command.gid, command.now_ns);
  made.device = command.device;
  link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.mirror && drains(made.type)) {
    made.in_drain = true;
    const std::uint32_t type = made.type == FileType::kFifo ? S_IFIFO : S_IFSOCK;
    mirror(msg::MirrorKind::kSpecial, made, path(made)).mode |= type;
  }
  return Outcome{made.id, {}};
}

Result<Outcome> State::run(const AddLink& command) {
  File* const file = find(command.file);
  if (file == nullptr || !file->parent) return fail(Code::kNotFound, "manager.link");
  if (file->type == FileType::kDirectory) return fail(Code::kSystem, "manager.link", EPERM);
  if (file->links.size() + 1 >= limits::kLinksMax) {
    return fail(Code::kSystem, "manager.link", EMLINK);
  }
  STDCHK_ASSIGN(File * parent, check_new_name(command.parent, command.name));
  Link& made = add_link(*file, *parent, command.name);
  file->ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  // The drain itself gives further names to a file that waits for it.
  const bool is_there = file->type == FileType::kRegular ? file->newest.drained : file->in_drain;
  if (command.mirror && is_there) {
    made.in_drain = true;
    leave_drained(*parent, command.name, file->newest.written);
    mirror(msg::MirrorKind::kLink, *file, path(*file), path(made));
  }
  return Outcome{file->id, {}};
}

Result<Outcome> State::run(const RestoreLink& command) {
  STDCHK_TRY(check_name(command.name));
  File* const file = find(command.file);
  if (file == nullptr || !file->parent || file->type == FileType::kDirectory) {
    return fail(Code::kInvalidArgument, "manager.restore_link");
  }
  STDCHK_ASSIGN(File * parent, find_directory(command.parent));
  if (parent->children.count(command.name) > 0) {
    return fail(Code::kExists, "manager.restore_link");
  }
  Link& made = add_link(*file, *parent, command.name);
  made.in_drain = command.in_drain;
  made.stale_in_drain = command.stale_in_drain;
  return Outcome{file->id, {}};
}

/// Returns the parts of a further name, if the file is an image under that name.
std::optional<PatternName> State::image_of(const File& file, const Link& link) const {
  if (file.type != FileType::kRegular) return std::nullopt;
  return image_name(link.parent, link.name);
}

Link& State::add_link(File& file, File& parent, std::string_view name) {
  parent.children.emplace(name, file.id);
  Link& made = file.links.emplace_back(Link{parent.id, std::string(name)});
  if (const auto image = image_of(file, made)) {
    set_generations_.add(parent.id, *image, file.newest.written);
  }
  return made;
}

std::vector<Link>::iterator State::find_link(File& file, FileId parent, std::string_view name) {
  const auto link = std::ranges::find_if(
      file.links, [&](const Link& other) { return other.parent == parent && other.name == name; });
  STDCHK_ASSERT(link != file.links.end());
  return link;
}

/// Removes a further name of the file.
void State::remove_link(File& file, File& parent, std::string_view name, bool mirrors) {
  const auto link = find_link(file, parent.id, name);
  if (mirrors && (link->in_drain || link->stale_in_drain)) {
    leave_drained(parent, name, ~std::uint64_t{0});
    mirror(msg::MirrorKind::kUnlink, file, path(*link));
  }
  if (const auto image = image_of(file, *link)) {
    set_generations_.lose(parent.id, *image, file.newest.content(), sequence_);
    set_generations_.remove(parent.id, *image);
  }
  parent.children.erase(link->name);
  file.links.erase(link);
}

/// Makes this name of the file its first name, so that commands on names need no other case. The
/// drain directory must have the content under the first name. A drain may end there at any moment.
void State::make_first(File& file, FileId parent, std::string_view name) {
  if (file.parent == parent && file.name == name) return;
  const auto link = find_link(file, parent, name);
  if (file.in_drain && !link->in_drain) {
    link->in_drain = true;
    link->stale_in_drain = false;
    mirror(msg::MirrorKind::kLink, file, path(file), path(*link));
  }
  std::swap(file.parent, link->parent);
  std::swap(file.name, link->name);
  std::swap(file.in_drain, link->in_drain);
  std::swap(file.stale_in_drain, link->stale_in_drain);
}

/// Called after the file has lost its first name. A further name takes its place.
void State::give_next_name(File& file) {
  if (file.parent || file.links.empty()) return;
  Link next = std::move(file.links.back());
  file.links.pop_back();
  file.parent = next.parent;
  file.name = std::move(next.name);
  file.in_drain = next.in_drain;
  file.stale_in_drain = next.stale_in_drain;
  enlist(file);
}

std::string State::path(const Link& link) const {
  const std::string above = path(*file(link.parent));
  return above.empty() ? link.name : above + "/" + link.name;
}

/// Called before the file loses its first name and no other file gets it. Queues the change for the
/// drain directory, where the file stays under its next name.
void State::mirror_lost_name(File& file, bool directory) {
  if (directory) {
    mirror(msg::MirrorKind::kRemoveDirectory, file, path(file));
    return;
  }
  keep_for_next_name(file);
  mirror(msg::MirrorKind::kUnlink, file, path(file));
}

/// Called before the file loses its first name. Its bytes in the drain directory stay under its
/// next name; without another name, they stay where those read them who have the file open.
void State::keep_for_next_name(File& file) {
  if (file.links.empty()) return set_aside(file);
  Link& next = file.links.back();
  if (!file.in_drain || next.in_drain) return;
  next.in_drain = true;
  next.stale_in_drain = false;
  mirror(msg::MirrorKind::kLink, file, path(file), path(next));
}

/// Called when the drain directory has a new version under the first name. Gives the other names to
/// the new file there.
void State::mirror_links(File& file) {
  for (Link& link : file.links) {
    link.in_drain = true;
    link.stale_in_drain = false;
    mirror(msg::MirrorKind::kLink, file, path(file), path(link));
  }
}

}  // namespace stdchk::manager
