#include "fuse/entries.h"

#include <cerrno>

#include "core/base/file_time.h"
#include "core/base/mutex.h"
#include "core/files/type_bits.h"

namespace stdchk::mount {
namespace {

constexpr std::uint64_t kGeneration = 1;  // node numbers are never used twice

}  // namespace

struct stat stat_of(const Attributes& attributes) {
  struct stat out {};
  out.st_ino = attributes.id.value;
  out.st_mode = type_bits(attributes.type) | (attributes.mode & 07777);
  out.st_nlink = attributes.link_count;
  out.st_uid = attributes.uid;
  out.st_gid = attributes.gid;
  out.st_size = static_cast<off_t>(attributes.size_bytes);
  out.st_rdev = attributes.device;
  out.st_blksize = kPreferredBytes;
  out.st_blocks = static_cast<blkcnt_t>((attributes.stored_bytes + 511) / 512);
  out.st_atim = to_timespec(attributes.atime_ns);
  out.st_mtim = to_timespec(attributes.mtime_ns);
  out.st_ctim = to_timespec(attributes.ctime_ns);
  return out;
}

client::Owner owner_of(fuse_req_t request, const Node& parent, mode_t mode) {
  const fuse_ctx* caller = fuse_req_ctx(request);
  const mode_t unmasked = mode & 07777;
  client::Owner owner{unmasked & ~caller->umask, caller->uid, caller->gid, unmasked};
  const ReaderLock lock(parent.mutex);
  if ((parent.last.mode & S_ISGID) != 0) {
    owner.gid = parent.last.gid;
    if (S_ISDIR(mode)) owner.mode |= S_ISGID;
  }
  return owner;
}

Attributes Entries::view(const Node& node, const Result<Attributes>& in_pool) {
  const ReaderLock lock(node.mutex);
  Attributes own = node.last;
  bool session = !node.writers.empty();
  if (session) own = node.writers.front()->attributes();
  if (!in_pool) {
    const bool is_removed = node.unlinked || in_pool.error().code == Code::kNotFound;
    if (is_removed) own.link_count = 0;
    return own;
  }
  Attributes shown = *in_pool;
  if (node.type == FileType::kRegular && (session || shown.version != own.version)) {
    shown.size_bytes = own.size_bytes;
    // Bytes that are not stored yet count too: tools take a file with few blocks for a sparse file.
    shown.stored_bytes = session ? own.size_bytes : own.stored_bytes;
    shown.version = own.version;
    shown.mtime_ns = own.mtime_ns;
  }
  if (node.mtime_set) shown.mtime_ns = *node.mtime_set;
  return shown;
}

fuse_entry_param Entries::entry_of(const Node& node, const Attributes& attributes) {
  fuse_entry_param entry{};
  entry.ino = node.id;
  entry.generation = kGeneration;
  entry.attr = stat_of(attributes);
  entry.attr_timeout = kCacheSeconds;
  entry.entry_timeout = kCacheSeconds;
  return entry;
}

Result<fuse_entry_param> Entries::make(const Attributes& attributes, fuse_ino_t parent,
                                       std::string_view name) {
  STDCHK_ASSIGN(auto node, nodes_.find_or_make(attributes, parent, name));
  return entry_of(*node, node->in_session() ? view(*node) : attributes);
}

void Entries::reply(fuse_req_t request, const Attributes& attributes, fuse_ino_t parent,
                    std::string_view name) {
  auto entry = make(attributes, parent, name);
  if (!entry) return mount::reply(request, fail(entry.error()));
  // The kernel was interrupted and does not count this reference.
  if (fuse_reply_entry(request, &*entry) == -ENOENT) nodes_.forget(entry->ino, 1);
}

void Entries::reply_link(fuse_req_t request, const NodePtr& node, const Attributes& attributes,
                         fuse_ino_t parent, std::string_view name) {
  nodes_.add_name(node, parent, name);
  const fuse_entry_param entry = entry_of(*node, view(*node, attributes));
  // The kernel was interrupted and does not count this reference.
  if (fuse_reply_entry(request, &entry) == -ENOENT) nodes_.forget(entry.ino, 1);
}

}  // namespace stdchk::mount
