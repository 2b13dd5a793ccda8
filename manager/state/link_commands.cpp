#include "manager/state/link_commands.h"

#include <sys/stat.h>

#include <cerrno>

#include "core/base/limits.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {
namespace {

bool is_special(FileType type) {
  return type == FileType::kFifo || type == FileType::kSocket ||
         type == FileType::kCharacterDevice || type == FileType::kBlockDevice;
}

/// Returns true when the drain directory gets special files of this type. It gets no devices: only
/// the administrator of the parallel file system decides who may make devices there.
bool drains(FileType type) { return type == FileType::kFifo || type == FileType::kSocket; }

}  // namespace

Result<Affected> LinkCommands::run(const AddNode& command) {
  if (!is_special(command.type)) return fail(Code::kInvalidArgument, "manager.mknod");
  STDCHK_TRY(files_.check_new_id(command.id));
  STDCHK_ASSIGN(File * parent, files_.check_new_name(command.parent, command.name));
  File& made =
      files_.add(command.id, command.type, command.mode, command.uid, command.gid, command.now_ns);
  made.device = command.device;
  inherit_lists(*parent, made);
  catalog_.link(made, *parent, command.name);
  parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.mirror && drains(made.type)) {
    made.in_drain = true;
    const std::uint32_t type = made.type == FileType::kFifo ? S_IFIFO : S_IFSOCK;
    catalog_.mirror.add(msg::MirrorKind::kSpecial, made, files_.path(made)).mode |= type;
  }
  return Affected{made.id, {}};
}

Result<Affected> LinkCommands::run(const AddLink& command) {
  File* const file = files_.find(command.file);
  if (file == nullptr || !file->parent) return fail(Code::kNotFound, "manager.link");
  if (file->type == FileType::kDirectory) return fail(Code::kSystem, "manager.link", EPERM);
  if (file->links.size() + 1 >= limits::kLinksMax) {
    return fail(Code::kSystem, "manager.link", EMLINK);
  }
  STDCHK_ASSIGN(File * parent, files_.check_new_name(command.parent, command.name));
  Link& made = links_.add(*file, *parent, command.name);
  file->ctime_ns = parent->newest.mtime_ns = parent->ctime_ns = command.now_ns;
  if (command.held) {
    hold(*file, *parent, command.name);
    return Affected{file->id, {}};
  }
  // The drain itself gives further names to a file that waits for it.
  const bool is_there = file->type == FileType::kRegular ? file->newest.drained : file->in_drain;
  if (command.mirror && is_there) {
    made.in_drain = true;
    catalog_.leave_drained(*parent, command.name, file->newest.written);
    catalog_.mirror.add(msg::MirrorKind::kLink, *file, files_.path(*file), files_.path(made));
  }
  return Affected{file->id, {}};
}

/// The file waits for its next drain, as its new name must not be in the drain directory before.
void LinkCommands::hold(File& file, const File& parent, std::string_view name) {
  catalog_.mirror.hold(file.id);
  if (file.type != FileType::kRegular) return;
  if (file.newest.drained) catalog_.drain_again(file);
  if (catalog_.names().part(parent, name) != SetPart::kPointer) return;
  catalog_.commits.remove(file);
  file.newest.sequence = ++catalog_.sequence;
  catalog_.commits.add(file);
}

Result<Affected> LinkCommands::run(const RestoreLink& command) {
  STDCHK_TRY(check_name(command.name));
  File* const file = files_.find(command.file);
  if (file == nullptr || !file->parent || file->type == FileType::kDirectory) {
    return fail(Code::kInvalidArgument, "manager.restore_link");
  }
  STDCHK_ASSIGN(File * parent, files_.find_directory(command.parent));
  if (parent->as_directory.children.count(command.name) > 0) {
    return fail(Code::kExists, "manager.restore_link");
  }
  Link& made = links_.add(*file, *parent, command.name);
  made.in_drain = command.in_drain;
  made.stale_in_drain = command.stale_in_drain;
  return Affected{file->id, {}};
}

}  // namespace stdchk::manager
