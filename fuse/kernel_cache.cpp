#include "fuse/kernel_cache.h"

#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

/// A negative offset drops attributes only. The pages belong to the node's version and stay valid.
void drop_attributes_of(fuse_session* session, const Node& node) {
  fuse_lowlevel_notify_inval_inode(session, node.id, -1, 0);
}

}  // namespace

void KernelCache::init(const fuse_conn_info& connection) {
#ifdef FUSE_CAP_EXPIRE_ONLY
  can_expire_ = (connection.want & FUSE_CAP_EXPIRE_ONLY) != 0;
#endif
  drops_pages_ = connection.proto_major > 7 || connection.proto_minor >= 39;
}

void KernelCache::expire_entry(NodeId parent, const std::string& name) {
  if (name.empty()) return;
  notifier_.post([parent, name, expire = can_expire_.load()](fuse_session* session) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
    if (expire) {
      fuse_lowlevel_notify_expire_entry(session, parent, name.c_str(), name.size());
      return;
    }
#elif defined(FUSE_CAP_EXPIRE_ONLY)
    if (expire) {
      fuse_lowlevel_notify_expire_entry(session, parent, name.c_str(), name.size(),
                                        FUSE_LL_EXPIRE_ONLY);
      return;
    }
#endif
    (void)expire;
    fuse_lowlevel_notify_inval_entry(session, parent, name.c_str(), name.size());
  });
}

void KernelCache::expire_node(const Node& node) {
  NodeId parent = 0;
  std::string name;
  {
    const ReaderLock lock(node.mutex);
    parent = node.parent;
    name = node.name;
  }
  if (parent != 0) expire_entry(parent, name);
}

/// The thread of a request may send this notice: the kernel drops no pages, and takes no lock that a
/// request may hold.
void KernelCache::drop_attributes(const Node& node) {
  fuse_session* const session = session_;
  if (session != nullptr) drop_attributes_of(session, node);
}

void KernelCache::drop_pages(const Node& node, off_t offset, std::size_t size) {
  if (drops_pages_ || node.cached_opens == 0) return;
  notifier_.post([id = node.id, offset, size](fuse_session* session) {
    fuse_lowlevel_notify_inval_inode(session, id, offset, static_cast<off_t>(size));
  });
}

void KernelCache::grow(const Node& node, std::uint64_t size_bytes, std::byte last) {
  notifier_.post([id = node.id, size_bytes, last](fuse_session* session) mutable {
    // The page with the earlier end has zeros behind it.
    fuse_lowlevel_notify_inval_inode(session, id, 0, 0);
    fuse_bufvec data{};
    data.count = 1;
    data.buf[0].size = 1;
    data.buf[0].mem = &last;
    data.buf[0].fd = -1;
    fuse_lowlevel_notify_store(session, id, static_cast<off_t>(size_bytes - 1), &data,
                               static_cast<fuse_buf_copy_flags>(0));
    // The page that was stored has one byte of the file.
    fuse_lowlevel_notify_inval_inode(session, id, static_cast<off_t>(size_bytes - 1), 1);
  });
}

void KernelCache::entry_changed(FileId directory, const std::string& name) {
  notifier_.post([this, directory, name](fuse_session*) {
    if (auto node = nodes_.current(directory)) expire_entry(node->id, name);
  });
}

void KernelCache::file_changed(FileId file) {
  notifier_.post([this, file](fuse_session* session) {
    auto node = nodes_.current(file);
    if (!node) return;
    drop_attributes_of(session, *node);
    if (node->type == FileType::kRegular && !node->in_session()) expire_node(*node);
  });
}

}  // namespace stdchk::mount
