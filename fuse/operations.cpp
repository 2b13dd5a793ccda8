// The table of functions that libfuse calls.
#include "fuse/bridge.h"

namespace stdchk::mount {
namespace {

Bridge& bridge(fuse_req_t request) { return *static_cast<Bridge*>(fuse_req_userdata(request)); }

// The functions that libfuse calls. Each of them calls a group of requests.

void on_init(void* user, fuse_conn_info* connection) {
  static_cast<Bridge*>(user)->init(connection);
}
void on_lookup(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).names().lookup(r, parent, name);
}
void on_forget(fuse_req_t r, fuse_ino_t node, std::uint64_t count) {
  bridge(r).nodes().forget(node, count);
  fuse_reply_none(r);
}
void on_forget_multi(fuse_req_t r, std::size_t count, fuse_forget_data* forgets) {
  for (std::size_t i = 0; i < count; i++)
    bridge(r).nodes().forget(forgets[i].ino, forgets[i].nlookup);
  fuse_reply_none(r);
}
void on_getattr(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) {
  bridge(r).attributes().getattr(r, node, info);
}
void on_setattr(fuse_req_t r, fuse_ino_t node, struct stat* wanted, int mask,
                fuse_file_info* info) {
  bridge(r).attributes().setattr(r, node, wanted, mask, info);
}
void on_readlink(fuse_req_t r, fuse_ino_t node) { bridge(r).names().readlink(r, node); }
void on_mknod(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  bridge(r).names().mknod(r, parent, name, mode, device);
}
void on_mkdir(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode) {
  bridge(r).names().mkdir(r, parent, name, mode);
}
void on_unlink(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).names().remove(r, parent, name, false);
}
void on_rmdir(fuse_req_t r, fuse_ino_t parent, const char* name) {
  bridge(r).names().remove(r, parent, name, true);
}
void on_symlink(fuse_req_t r, const char* target, fuse_ino_t parent, const char* name) {
  bridge(r).names().symlink(r, target, parent, name);
}
void on_rename(fuse_req_t r, fuse_ino_t from, const char* name, fuse_ino_t to, const char* new_name,
               unsigned flags) {
  bridge(r).names().rename(r, from, name, to, new_name, flags);
}
void on_link(fuse_req_t r, fuse_ino_t node, fuse_ino_t parent, const char* name) {
  bridge(r).names().link(r, node, parent, name);
}
void on_open(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) {
  bridge(r).files().open(r, node, info);
}
void on_create(fuse_req_t r, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) {
  bridge(r).files().create(r, parent, name, mode, info);
}
void on_read(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* info) {
  bridge(r).files().read(r, size, offset, info);
}
void on_write(fuse_req_t r, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* info) {
  bridge(r).files().write(r, bytes, size, offset, info);
}
void on_flush(fuse_req_t r, fuse_ino_t, fuse_file_info* info) { bridge(r).files().flush(r, info); }
void on_release(fuse_req_t r, fuse_ino_t, fuse_file_info* info) {
  bridge(r).files().release(r, info);
}
void on_fsync(fuse_req_t r, fuse_ino_t, int, fuse_file_info* info) {
  bridge(r).files().fsync(r, info);
}
void on_opendir(fuse_req_t r, fuse_ino_t node, fuse_file_info* info) {
  bridge(r).directories().opendir(r, node, info);
}
void on_readdir(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset, fuse_file_info* info) {
  bridge(r).directories().readdir(r, size, offset, info, false);
}
void on_readdirplus(fuse_req_t r, fuse_ino_t, std::size_t size, off_t offset,
                    fuse_file_info* info) {
  bridge(r).directories().readdir(r, size, offset, info, true);
}
void on_releasedir(fuse_req_t r, fuse_ino_t, fuse_file_info* info) {
  bridge(r).directories().releasedir(r, info);
}
void on_fsyncdir(fuse_req_t r, fuse_ino_t node, int, fuse_file_info*) {
  bridge(r).directories().fsyncdir(r, node);
}
void on_statfs(fuse_req_t r, fuse_ino_t) { bridge(r).attributes().statfs(r); }
void on_setxattr(fuse_req_t r, fuse_ino_t node, const char* name, const char* value,
                 std::size_t size, int flags) {
  bridge(r).xattrs().set(r, node, name, {value, size}, flags, false);
}
void on_getxattr(fuse_req_t r, fuse_ino_t node, const char* name, std::size_t size) {
  bridge(r).xattrs().get(r, node, name, size);
}
void on_listxattr(fuse_req_t r, fuse_ino_t node, std::size_t size) {
  bridge(r).xattrs().list(r, node, size);
}
void on_removexattr(fuse_req_t r, fuse_ino_t node, const char* name) {
  bridge(r).xattrs().set(r, node, name, {}, 0, true);
}
void on_fallocate(fuse_req_t r, fuse_ino_t, int mode, off_t offset, off_t length,
                  fuse_file_info* info) {
  bridge(r).files().fallocate(r, mode, offset, length, info);
}
void on_getlk(fuse_req_t r, fuse_ino_t, fuse_file_info* info, struct flock* lock) {
  bridge(r).files().getlk(r, info, *lock);
}
void on_setlk(fuse_req_t r, fuse_ino_t, fuse_file_info* info, struct flock* lock, int sleep) {
  bridge(r).files().setlk(r, info, *lock, sleep != 0);
}
void on_flock(fuse_req_t r, fuse_ino_t, fuse_file_info* info, int operation) {
  bridge(r).files().flock(r, info, operation);
}
void on_lseek(fuse_req_t r, fuse_ino_t, off_t offset, int whence, fuse_file_info* info) {
  bridge(r).files().lseek(r, offset, whence, info);
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
  ops.lseek = Counted<RequestKind::kLseek, on_lseek>::call;
  return ops;
}

}  // namespace

const fuse_lowlevel_ops& Bridge::operations() {
  static const fuse_lowlevel_ops ops = make_operations();
  return ops;
}

}  // namespace stdchk::mount
