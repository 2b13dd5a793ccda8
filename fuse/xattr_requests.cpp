#include "fuse/xattr_requests.h"

#include <sys/xattr.h>

#include <cerrno>
#include <optional>
#include <string>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/policy/access_list.h"
#include "core/policy/policy.h"

namespace stdchk::mount {
namespace {

constexpr std::string_view kTrusted = "trusted.";

/// The kernel itself checks who may use which of these kinds. Not security.capability: a mount
/// without set-ID bits (nosuid) gives no capabilities, and each write would have to remove it.
bool is_stored_xattr(std::string_view name) {
  return is_access_list(name) || name.starts_with("user.") || name.starts_with(kTrusted) ||
         (name.starts_with("security.") && name != "security.capability");
}
bool is_virtual(std::string_view name) { return name == kXattrVersion || name == kXattrDrained; }

}  // namespace

void XattrRequests::set(fuse_req_t request, fuse_ino_t number, const char* name,
                        std::string_view value, int flags, bool remove) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.setxattr"));
  if (!is_stored_xattr(name)) return reply(request, fail(Code::kUnsupported, "mount.setxattr"));
  if (is_virtual(name)) return reply(request, fail(Code::kPermission, "mount.setxattr"));
  if (std::string_view(name).starts_with(kXattrPolicy)) {
    return reply(request, set_policy(*node, std::string_view(name).substr(kXattrPolicy.size()),
                                     remove ? "inherit" : value));
  }
  if (value.size() > limits::kXattrBytesMax) {
    return reply(request, fail(Code::kSystem, "mount.setxattr", E2BIG));
  }
  if (name == kXattrWriteMode && !remove && value != "cached" && value != "direct") {
    return reply(request, fail(Code::kInvalidArgument, "mount.setxattr"));
  }
  msg::SetXattr change;
  change.file = node->file;
  change.name = name;
  change.value = value;
  change.remove = remove;
  if ((flags & XATTR_CREATE) != 0) change.mode = msg::XattrMode::kCreate;
  if ((flags & XATTR_REPLACE) != 0) change.mode = msg::XattrMode::kReplace;
  Status done =
      is_access_list(name) ? set_list(request, *node, change) : filesystem_.set_xattr(change);
  if (name == kXattrWriteMode) choice_.forget(node->file);
  if (done) node->times_due = writeback_;
  reply(request, done);
}

void XattrRequests::get(fuse_req_t request, fuse_ino_t number, const char* name, std::size_t size) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.getxattr"));
  if (!is_stored_xattr(name)) return reply(request, fail(Code::kUnsupported, "mount.getxattr"));
  if (is_virtual(name)) {
    if (node->type != FileType::kRegular) {
      return reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
    }
    Attributes now = entries_.view(*node);
    // A mount that holds the directory does not hear when its files are drained.
    if (name == kXattrDrained && now.drain == DrainState::kPending) {
      const auto fresh = filesystem_.attributes_fresh(node->file);
      if (fresh.has_value()) now.drain = fresh->drain;
    }
    std::string version = std::to_string(now.version);
    return reply_sized(request, name == kXattrVersion ? version : drain_name(now.drain), size);
  }
  if (std::string_view(name).starts_with(kXattrPolicy)) {
    return get_policy(request, *node, std::string_view(name).substr(kXattrPolicy.size()), size);
  }
  const auto held = refused_.end_xattr(fuse_req_ctx(request)->pid, node->file);
  if (const Status may_be = check_stored(*node, name); !may_be) {
    return reply_failed(request, *node, may_be.error());
  }
  auto all = filesystem_.xattrs(node->file);
  if (!all) return reply_failed(request, *node, all.error());
  for (const auto& [key, value] : *all) {
    if (key == name) return reply_sized(request, value, size);
  }
  reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
}

/// Sets or removes an access list. Programs such as `cp -p` set lists that say no more than a mode.
/// Such a list becomes a chmod, which the batch of a held directory can have.
Status XattrRequests::set_list(fuse_req_t request, Node& node, const msg::SetXattr& change) {
  const bool is_access = change.name == kXattrAccessList;
  STDCHK_ASSIGN(const Attributes before, filesystem_.attributes(node.file));
  const bool exists = is_access ? before.has_access_list : before.has_default_list;
  if (change.remove && !exists) return fail(Code::kNoAttribute, "mount.setxattr");
  std::optional<AccessList> list;
  if (!change.remove) {
    STDCHK_ASSIGN(list, AccessList::parse(change.value));
  }
  if (is_access && !exists && list && list->is_minimal()) {
    msg::SetAttributes chmod;
    chmod.file = node.file;
    chmod.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
    chmod.mode = with_permissions(before.mode, list->mode());
    STDCHK_TRY(filesystem_.set_attributes(chmod));
  } else {
    STDCHK_TRY(filesystem_.set_xattr(change));
  }
  if (is_access && list) set_id_.clear_of_group(node, request);
  STDCHK_ASSIGN(const Attributes after, filesystem_.attributes(node.file));
  const WriterLock lock(node.mutex);
  node.last.mode = after.mode;
  node.last.ctime_ns = after.ctime_ns;
  node.last.has_access_list = after.has_access_list;
  node.last.has_default_list = after.has_default_list;
  return {};
}

/// Returns attributes that are as new as those of stat(2), mostly from a cache. `ls -l` asks for
/// extended attributes of each file. So looks the name up: the look-ups of a scan fetch the names
/// that follow, too. Asks for a directory by its id: the kernel wants its access lists on each path.
Result<Attributes> XattrRequests::attributes_of(const Node& node) {
  NodeId parent = 0;
  std::string name;
  if (node.type != FileType::kDirectory && !node.unlinked) {
    const ReaderLock lock(node.mutex);
    parent = node.parent;
    name = node.name;
  }
  if (const NodePtr directory = nodes_.find(parent); directory != nullptr) {
    auto found = filesystem_.lookup(directory->file, name);
    if (found && found->id == node.file) return found;
  }
  return filesystem_.attributes(node.file);
}

/// Fails when the attributes say that the file has no such extended attribute. Then nobody asks the
/// manager. The manager may have dropped a file that this mount has unlinked.
Status XattrRequests::check_stored(const Node& node, std::string_view name) {
  const auto now = attributes_of(node);
  if (!now && !node.unlinked) return fail(now.error());
  bool may_be = !now || !now->has_no_xattrs;
  if (name == kXattrAccessList) may_be = now && now->has_access_list;
  if (name == kXattrDefaultList) may_be = now && now->has_default_list;
  if (!may_be) return fail(Code::kNoAttribute, "mount.getxattr");
  return {};
}

Status XattrRequests::set_policy(const Node& node, std::string_view name, std::string_view value) {
  const auto setting = parse_setting(name, value);
  if (!setting) return fail(setting.error().error.code, "mount.setxattr");
  if (const auto problem = check_setting(*setting))
    return fail(problem->error.code, "mount.setxattr");
  const auto done = filesystem_.set_policy(node.file, Policy{{*setting}});
  if (!done) return fail(done.error().error);
  return {};
}

void XattrRequests::get_policy(fuse_req_t request, const Node& node, std::string_view name,
                               std::size_t size) {
  const auto policy = filesystem_.policy(node.file);
  if (!policy) return reply(request, fail(policy.error()));
  for (const PolicySetting& setting : policy->effective.settings) {
    if (policy_name(setting.key) == name) {
      return reply_sized(request, format_value(setting), size);
    }
  }
  reply(request, fail(Code::kNoAttribute, "mount.getxattr"));
}

/// If the file is gone, the kernel looks its name up again, and repeats the call.
void XattrRequests::reply_failed(fuse_req_t request, const Node& node, const Error& error) {
  const bool again = is_gone(error) && refused_.refuse(fuse_req_ctx(request)->pid, node.file,
                                                       RefusedCalls::Call::kXattr);
  reply(request, again ? fail(Code::kStale, "mount.getxattr") : fail(error));
}

/// Lists the attributes that are stored. Leaves out virtual attributes, so that copies of a file do
/// not set them.
void XattrRequests::list(fuse_req_t request, fuse_ino_t number, std::size_t size) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.listxattr"));
  const auto held = refused_.end_xattr(fuse_req_ctx(request)->pid, node->file);
  if (const auto now = attributes_of(*node); now && now->has_no_xattrs) {
    return reply_sized(request, {}, size);
  }
  auto all = filesystem_.xattrs(node->file);
  if (!all) return reply_failed(request, *node, all.error());
  std::string names;
  for (const auto& [key, value] : *all) {
    if (key.starts_with(kTrusted) && fuse_req_ctx(request)->uid != 0) continue;
    names += key;
    names += '\0';
  }
  reply_sized(request, names, size);
}

}  // namespace stdchk::mount
