// A FUSE file system that stores nothing: the ceiling of every mount that uses the same libfuse.
// Keeps names and sizes in memory, copies written bytes into a buffer and drops them, and reads
// from a buffer.
//
// fuse-null --mode direct|cached|writeback MOUNTPOINT
//
// Runs in the foreground until it is unmounted.

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kRequestBytesMax = 1 << 20;
constexpr double kCacheSeconds = 1.0;

struct File {
  std::atomic<std::size_t> size{0};
  mode_t mode = 0;
};

/// The whole state. Files are never freed, so a node number is an index.
struct Null {
  std::mutex mutex;
  std::deque<File> files;                                          // index 0: the root
  std::map<std::pair<fuse_ino_t, std::string>, fuse_ino_t> names;  ///< by directory and name
  bool direct = true;
  bool writeback = false;
} g_null;  // global, because libfuse's callbacks share it

File& file_of(fuse_ino_t node) {
  std::scoped_lock lock(g_null.mutex);
  return g_null.files[node - 1];
}

char* buffer() {
  thread_local std::vector<char> bytes(kRequestBytesMax, 'n');
  return bytes.data();
}

struct stat stat_of(fuse_ino_t node) {
  File& file = file_of(node);
  struct stat out {};
  out.st_ino = node;
  out.st_mode = file.mode;
  out.st_nlink = 1;
  out.st_uid = geteuid();
  out.st_gid = getegid();
  out.st_size = static_cast<off_t>(file.size.load());
  out.st_blksize = kRequestBytesMax;
  out.st_blocks = (out.st_size + 511) / 512;
  return out;
}

fuse_entry_param entry_of(fuse_ino_t node) {
  fuse_entry_param entry{};
  entry.ino = node;
  entry.generation = 1;
  entry.attr = stat_of(node);
  entry.attr_timeout = entry.entry_timeout = kCacheSeconds;
  return entry;
}

void on_init(void*, fuse_conn_info* connection) {
  connection->max_write = kRequestBytesMax;
  connection->max_background = 64;
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                             FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
  if (g_null.writeback) connection->want |= connection->capable & FUSE_CAP_WRITEBACK_CACHE;
}

void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  fuse_ino_t node = 0;
  {
    std::scoped_lock lock(g_null.mutex);
    auto found = g_null.names.find({parent, name});
    if (found != g_null.names.end()) node = found->second;
  }
  if (node == 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_entry_param entry = entry_of(node);
  fuse_reply_entry(request, &entry);
}

void on_forget(fuse_req_t request, fuse_ino_t, std::uint64_t) { fuse_reply_none(request); }

void on_getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  struct stat out = stat_of(node);
  fuse_reply_attr(request, &out, kCacheSeconds);
}

void on_setattr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int mask,
                fuse_file_info*) {
  if ((mask & FUSE_SET_ATTR_SIZE) != 0) {
    file_of(node).size = static_cast<std::size_t>(wanted->st_size);
  }
  struct stat out = stat_of(node);
  fuse_reply_attr(request, &out, kCacheSeconds);
}

void prepare(fuse_file_info* info) {
  info->direct_io = g_null.direct;
  info->keep_cache = false;
}

fuse_entry_param make(fuse_ino_t parent, const char* name, mode_t mode) {
  fuse_ino_t node = 0;
  {
    std::scoped_lock lock(g_null.mutex);
    File& file = g_null.files.emplace_back();
    file.mode = mode;
    node = g_null.files.size();
    g_null.names[{parent, name}] = node;
  }
  return entry_of(node);
}

void on_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) {
  prepare(info);
  fuse_entry_param entry = make(parent, name, S_IFREG | (mode & 07777));
  fuse_reply_create(request, &entry, info);
}

void on_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
  fuse_entry_param entry = make(parent, name, S_IFDIR | (mode & 07777));
  fuse_reply_entry(request, &entry);
}

void on_open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info) {
  if ((info->flags & O_TRUNC) != 0) file_of(node).size = 0;
  prepare(info);
  fuse_reply_open(request, info);
}

void on_write(fuse_req_t request, fuse_ino_t node, const char* bytes, std::size_t size,
              off_t offset, fuse_file_info*) {
  std::memcpy(buffer(), bytes, std::min(size, kRequestBytesMax));
  File& file = file_of(node);
  std::size_t end = static_cast<std::size_t>(offset) + size;
  std::size_t known = file.size;
  while (known < end && !file.size.compare_exchange_weak(known, end)) {
  }
  fuse_reply_write(request, size);
}

void on_read(fuse_req_t request, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info*) {
  std::size_t have = file_of(node).size;
  auto from = static_cast<std::size_t>(offset);
  std::size_t count = from < have ? std::min({size, have - from, kRequestBytesMax}) : 0;
  fuse_reply_buf(request, buffer(), count);
}

/// unlink and rmdir: directories may have entries.
void on_remove(fuse_req_t request, fuse_ino_t parent, const char* name) {
  std::size_t removed = 0;
  {
    std::scoped_lock lock(g_null.mutex);
    removed = g_null.names.erase({parent, name});
  }
  fuse_reply_err(request, removed > 0 ? 0 : ENOENT);
}

void on_rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
               const char* new_name, unsigned) {
  bool is_known = false;
  {
    std::scoped_lock lock(g_null.mutex);
    const auto found = g_null.names.extract({from, name});
    is_known = !found.empty();
    if (is_known) g_null.names[{to, new_name}] = found.mapped();
  }
  fuse_reply_err(request, is_known ? 0 : ENOENT);
}

void on_readdir(fuse_req_t request, fuse_ino_t, std::size_t, off_t, fuse_file_info*) {
  fuse_reply_buf(request, nullptr, 0);
}

fuse_lowlevel_ops make_operations() {
  fuse_lowlevel_ops ops{};
  ops.init = on_init;
  ops.lookup = on_lookup;
  ops.forget = on_forget;
  ops.getattr = on_getattr;
  ops.setattr = on_setattr;
  ops.create = on_create;
  ops.open = on_open;
  ops.write = on_write;
  ops.read = on_read;
  ops.mkdir = on_mkdir;
  ops.unlink = on_remove;
  ops.rmdir = on_remove;
  ops.rename = on_rename;
  ops.readdir = on_readdir;
  return ops;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool has_mode = words.size() == 3 && words[0] == "--mode";
  const std::string mode = has_mode ? words[1] : "direct";
  const bool is_known = mode == "direct" || mode == "cached" || mode == "writeback";
  if ((!has_mode && words.size() != 1) || words.back().starts_with("-") || !is_known) {
    std::fputs("Usage: fuse-null [--mode direct|cached|writeback] MOUNTPOINT\n", stderr);
    return 2;
  }
  const std::string& mountpoint = words.back();
  g_null.direct = mode == "direct";
  g_null.writeback = mode == "writeback";
  g_null.files.emplace_back().mode = S_IFDIR | 0755;

  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "fuse-null");
  fuse_opt_add_arg(&arguments, "-ofsname=fuse-null");
  const fuse_lowlevel_ops operations = make_operations();
  fuse_session* session = fuse_session_new(&arguments, &operations, sizeof(operations), nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr || fuse_set_signal_handlers(session) != 0) return 1;
  if (fuse_session_mount(session, mountpoint.c_str()) != 0) return 1;
  fuse_loop_config* loop = fuse_loop_cfg_create();
  int failed = fuse_session_loop_mt(session, loop);
  fuse_loop_cfg_destroy(loop);
  fuse_session_unmount(session);
  fuse_remove_signal_handlers(session);
  fuse_session_destroy(session);
  return failed == 0 ? 0 : 1;
}
