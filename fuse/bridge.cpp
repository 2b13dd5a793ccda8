#include "fuse/bridge.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

Bridge& bridge(fuse_req_t request) { return *static_cast<Bridge*>(fuse_req_userdata(request)); }

// The functions that libfuse calls. Each one calls the Bridge.

void on_init(void* user, fuse_conn_info* connection) {
  static_cast<Bridge*>(user)->init(connection);
}
void on_lookup(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).lookup(r, parent, name);
}
void on_forget(fuse_req_t r, fuse_ino_t node, std::uint64_t count) {
  bridge(r).forget(node, count);
  fuse_reply_none(r);
}
void on_forget_multi(fuse_req_t r, std::size_t count, fuse_forget_data* forgets) {
  for (std::size_t i = 0; i < count; i++) bridge(r).forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(r);
}
void on_getattr(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) {
  bridge(r).getattr(r, node, info);
}
void on_setattr(fuse_req_t r, fuse_ino_t node, struct stat* wanted, int mask,
                fuse_file_info* info) {
  bridge(r).setattr(r, node, wanted, mask, info);
}
void on_readlink(fuse_req_t r, fuse_ino_t node) { bridge(r).readlink(r, node); }
void on_mknod(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  bridge(r).mknod(r, parent, name, mode, device);
}
void on_mkdir(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode) {
  bridge(r).mkdir(r, parent, name, mode);
}
void on_unlink(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).remove(r, parent, name, false);
}
void on_rmdir(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).remove(r, parent, name, true);
}
void on_symlink(fuse_req_t r, const char* target, fuse_ino_t parent, const char* name) {
  bridge(r).symlink(r, target, parent, name);
}
void on_rename(fuse_req_t r, fuse_ino_t from, const char* name, fuse_ino_t to, const char* new_name,
               unsigned flags) {
  bridge(r).rename(r, from, name, to, new_name, flags);
}
void on_link(fuse_req_t r, fuse_ino_t node, fuse_ino_t parent, const char* name) {
  bridge(r).link(r, node, parent, name);
}
void on_open(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) { bridge(r).open(r, node, info); }
void on_create(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) {
  bridge(r).create(r, parent, name, mode, info);
}
void on_read(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* info) {
  bridge(r).read(r, size, offset, info);
}
void on_write(fuse_req_t r, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* info) {
  bridge(r).write(r, bytes, size, offset, info);
}
void on_flush(fuse_req_t r, fuse_ino_t, fuse_file_info* info) { bridge(r).flush(r, info); }
void on_release(fuse_req_t r, fuse_ino_t, fuse_file_info* info) { bridge(r).release(r, info); }
void on_fsync(fuse_req_t r, fuse_ino_t, int, fuse_file_info* info) { bridge(r).fsync(r, info); }
void on_opendir(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) {
  bridge(r).opendir(r, node, info);
}
void on_readdir(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* info) {
  bridge(r).readdir(r, size, offset, info, false);
}
void on_readdirplus(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset,
                    fuse_file_info* info) {
  bridge(r).readdir(r, size, offset, info, true);
}
void on_releasedir(fuse_req_t r, fuse_ino_t, fuse_file_info* info) {
  bridge(r).releasedir(r, info);
}
// Nothing to do: every change of a directory is durable when it is answered.
void on_fsyncdir(fuse_req_t r, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(r, 0); }
void on_statfs(fuse_req_t r, fuse_ino_t) { bridge(r).statfs(r); }
void on_setxattr(fuse_req_t r, fuse_ino_t node, const char* name, const char* value,
                 std::size_t size, int flags) {
  bridge(r).setxattr(r, node, name, {value, size}, flags, false);
}
void on_getxattr(fuse_req_t r, fuse_ino_t node, const char* name, std::size_t size) {
  bridge(r).getxattr(r, node, name, size);
}
void on_listxattr(fuse_req_t r, fuse_ino_t node, std::size_t size) {
  bridge(r).listxattr(r, node, size);
}
void on_removexattr(fuse_req_t r, fuse_ino_t node, const char* name) {
  bridge(r).setxattr(r, node, name, {}, 0, true);
}
void on_fallocate(fuse_req_t r, fuse_ino_t, int mode, off_t offset, off_t length,
                  fuse_file_info* info) {
  bridge(r).fallocate(r, mode, offset, length, info);
}
void on_getlk(fuse_req_t r, fuse_ino_t, fuse_file_info* info, struct flock* lock) {
  bridge(r).getlk(r, info, *lock);
}
void on_setlk(fuse_req_t r, fuse_ino_t, fuse_file_info* info, struct flock* lock, int sleep) {
  bridge(r).setlk(r, info, *lock, sleep != 0);
}
void on_flock(fuse_req_t r, fuse_ino_t, fuse_file_info* info, int operation) {
  bridge(r).flock(r, info, operation);
}

/// Calls one of the functions above, and counts the request and its time.
template <RequestKind kind, auto function>
struct Counted;
template <RequestKind kind, class... Arguments, void (*function)(fuse_req_t, Arguments...)>
struct Counted<kind, function> {
  static void call(fuse_req_t r, Arguments... arguments) {
    Bridge& of = bridge(r);  // taken first, because the answer ends the request
    const Time began = of.clock().now();
    function(r, arguments...);
    of.counts().count(kind, of.clock().now() - began);
  }
};

fuse_lowlevel_ops make_operations() {
  fuse_lowlevel_ops ops{};
  ops.init = on_init;
  ops.lookup = Counted<RequestKind::kLookup, on_lookup>::call;
  ops.forget = Counted<RequestKind::kForget, on_forget>::call;
  ops.forget_multi = Counted<RequestKind::kForget, on_forget_multi>::call;
  ops.getattr = Counted<RequestKind::kGetattr, on_getattr>::call;
  ops.setattr = Counted<RequestKind::kSetattr, on_setattr>::call;
  ops.readlink = Counted<RequestKind::kReadlink, on_readlink>::call;
  ops.mknod = Counted<RequestKind::kMknod, on_mknod>::call;
  ops.mkdir = Counted<RequestKind::kMkdir, on_mkdir>::call;
  ops.unlink = Counted<RequestKind::kUnlink, on_unlink>::call;
  ops.rmdir = Counted<RequestKind::kRmdir, on_rmdir>::call;
  ops.symlink = Counted<RequestKind::kSymlink, on_symlink>::call;
  ops.rename = Counted<RequestKind::kRename, on_rename>::call;
  ops.link = Counted<RequestKind::kLink, on_link>::call;
  ops.open = Counted<RequestKind::kOpen, on_open>::call;
  ops.create = Counted<RequestKind::kCreate, on_create>::call;
  ops.read = Counted<RequestKind::kRead, on_read>::call;
  ops.write = Counted<RequestKind::kWrite, on_write>::call;
  ops.flush = Counted<RequestKind::kFlush, on_flush>::call;
  ops.release = Counted<RequestKind::kRelease, on_release>::call;
  ops.fsync = Counted<RequestKind::kFsync, on_fsync>::call;
  ops.opendir = Counted<RequestKind::kOpendir, on_opendir>::call;
  ops.readdir = Counted<RequestKind::kReaddir, on_readdir>::call;
  ops.readdirplus = Counted<RequestKind::kReaddirplus, on_readdirplus>::call;
  ops.releasedir = Counted<RequestKind::kReleasedir, on_releasedir>::call;
  ops.fsyncdir = Counted<RequestKind::kFsyncdir, on_fsyncdir>::call;
  ops.statfs = Counted<RequestKind::kStatfs, on_statfs>::call;
  ops.setxattr = Counted<RequestKind::kSetxattr, on_setxattr>::call;
  ops.getxattr = Counted<RequestKind::kGetxattr, on_getxattr>::call;
  ops.listxattr = Counted<RequestKind::kListxattr, on_listxattr>::call;
  ops.removexattr = Counted<RequestKind::kRemovexattr, on_removexattr>::call;
  ops.fallocate = Counted<RequestKind::kFallocate, on_fallocate>::call;
  ops.getlk = Counted<RequestKind::kGetlk, on_getlk>::call;
  ops.setlk = Counted<RequestKind::kSetlk, on_setlk>::call;
  ops.flock = Counted<RequestKind::kFlock, on_flock>::call;
  return ops;
}

}  // namespace

void reply(fuse_req_t request, const Status& status) {
  const int number = status ? 0 : to_errno(status.error());
  // The application sees only the errno, so the log gets the reason.
  if (number == EIO) log::error("An input/output error: {}", describe(status.error()));
  reply_error(request, number);
}

void reply_error(fuse_req_t request, int number) {
  if (number != 0) bridge(request).counts().count_error(number);
  fuse_reply_err(request, number);
}

const fuse_lowlevel_ops& Bridge::operations() {
  static const fuse_lowlevel_ops ops = make_operations();
  return ops;
}

Bridge::Bridge(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
               BridgeOptions options)
    : filesystem_(filesystem),
      clock_(clock),
      options_(options),
      nodes_(root),
      locker_(filesystem, [this](Handle& handle) { return commit(handle); }) {}

Bridge::~Bridge() { stop(); }

std::string Bridge::path_of(const Node& node) const {
  std::string path;
  NodeId above = 0;
  {
    const ReaderLock lock(node.mutex);
    path = node.name;
    above = node.parent;
  }
  // The depth is limited, because a directory that is being moved may appear twice on the way.
  for (int depth = 0; above > FUSE_ROOT_ID && depth < 64; ++depth) {
    const NodePtr parent = nodes_.find(above);
    if (parent == nullptr) break;
    const ReaderLock parent_lock(parent->mutex);
    path.insert(0, parent->name + "/");
    above = parent->parent;
  }
  return path;
}

void Bridge::reply_for(const Node& node, fuse_req_t request, const Status& status) {
  const int number = status ? 0 : to_errno(status.error());
  if (number == EIO) {
    log::error("An input/output error of {}: {}", path_of(node), describe(status.error()));
  }
  reply_error(request, number);
}

void Bridge::start(fuse_session* session) {
  notifier_.start(session);
  locker_.start(session);
  filesystem_.set_cache_events(
      {[this](FileId directory, const std::string& name) { entry_changed(directory, name); },
       [this](FileId file) { file_changed(file); }});
}

void Bridge::stop() {
  filesystem_.set_cache_events({});
  locker_.stop();
  notifier_.stop();
}

void Bridge::init(fuse_conn_info* connection) {
  auto want = [&](unsigned capability) {
    if ((connection->capable & capability) != 0) connection->want |= capability;
  };
  auto refuse_capability = [&](unsigned capability) { connection->want &= ~capability; };
  connection->max_write = limits::kMiB;
  // More than reads of hanging files may take: others read ahead in the background, too.
  connection->max_background = 256;
  connection->congestion_threshold = 192;
  connection->time_gran = 1;
  want(FUSE_CAP_ASYNC_READ);
  want(FUSE_CAP_ASYNC_DIO);
  want(FUSE_CAP_ATOMIC_O_TRUNC);
  want(FUSE_CAP_PARALLEL_DIROPS);
  want(FUSE_CAP_READDIRPLUS);
  want(FUSE_CAP_READDIRPLUS_AUTO);
  if (options_.writeback) want(FUSE_CAP_WRITEBACK_CACHE);
  // A node holds one version, so the kernel need not guess from time and size whether pages are
  // valid.
  refuse_capability(FUSE_CAP_AUTO_INVAL_DATA);
  want(FUSE_CAP_EXPLICIT_INVAL_DATA);
  // Each thread receives requests into a buffer of its own, which costs less than a pipe.
  refuse_capability(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
#ifdef FUSE_CAP_EXPIRE_ONLY
  want(FUSE_CAP_EXPIRE_ONLY);
  can_expire_ = (connection->want & FUSE_CAP_EXPIRE_ONLY) != 0;
#endif
  kernel_drops_pages_ = connection->proto_major > 7 || connection->proto_minor >= 39;
}

void Bridge::expire_entry(fuse_ino_t parent, const std::string& name) {
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

void Bridge::expire_node(const NodePtr& node) {
  NodeId parent = 0;
  std::string name;
  {
    const ReaderLock lock(node->mutex);
    parent = node->parent;
    name = node->name;
  }
  if (parent != 0) expire_entry(parent, name);
}

// The library's thread calls these two functions and must not wait. The notifier's thread does the
// work.
void Bridge::entry_changed(FileId directory, const std::string& name) {
  notifier_.post([this, directory, name](fuse_session*) {
    if (auto node = nodes_.current(directory)) expire_entry(node->id, name);
  });
}

void Bridge::file_changed(FileId file) {
  notifier_.post([this, file](fuse_session* session) {
    auto node = nodes_.current(file);
    if (!node) return;
    // A negative offset drops attributes only. The pages belong to the node's version and stay
    // valid.
    fuse_lowlevel_notify_inval_inode(session, node->id, -1, 0);
    if (node->type == FileType::kRegular && !node->in_session()) expire_node(node);
  });
}

}  // namespace stdchk::mount
