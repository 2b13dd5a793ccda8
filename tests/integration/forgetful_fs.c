// A FUSE file system in memory that on request forgets all changes that were not made durable. It
// keeps only what POSIX promises to survive a power failure.
//
// forgetful-fs [--nodes] [--ignore-sync files|folders] MOUNTPOINT
//    --nodes        each process is a node with its own cache, as in a parallel file system:
//                   its sync makes only its own writes durable
//    --ignore-sync  each sync of that kind succeeds, and makes nothing durable
// Setting the extended attribute user.forget on MOUNTPOINT makes it forget:
//    all            everything that is not durable
//    bytes          unsynced bytes of files; names stay, as in a file system that journals names
//                   and allocates bytes late
// Files that are open then stay open. Runs in the foreground until it is unmounted or killed.
//
// Durable data:
// - A file's bytes and size, as at its last fsync or fdatasync. POSIX promises nothing for
//   close, and nothing for the file's name. A file that never was synced is empty.
// - A directory's names, as at its last fsync. The fsync(2) of a file does not cover its entry.
//   The directory's own name belongs to its parent. Each directory is synced
//   separately. When a sync reaches only one directory of a rename, the file has both names or
//   none. POSIX describes rename for running processes, not for crashes.
// - Modes, owners and times, always.
//
// A crash may leave other states: a write that is partly durable, or later changes without earlier
// ones. Pillai et al., "All File Systems Are Not Created Equal" (OSDI'14), table 1, lists them.
// This program offers only "bytes" of those.

#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

struct bytes {
  char* at;
  size_t size, room;
};

/// A change of a process to a file since the last sync: new bytes, or a new size.
struct change {
  size_t from, to;  ///< range of new bytes; if equal, the new size
  pid_t by;
};

struct entry {
  char name[NAME_MAX + 1];
  struct node* node;
};

struct names {
  struct entry* at;
  size_t count, room;
};

struct node {
  struct stat stat;
  struct bytes now, durable;
  struct change* changes;
  size_t change_count, change_room;
  struct names names_now, names_durable;
  char* target;  ///< target of a symbolic link
  struct node* next;
};

static struct node* nodes;  // every node ever made; none is freed
static struct node* root;
static bool has_nodes, ignores_files, ignores_folders;

static void* need(void* memory) {
  if (memory == NULL) abort();
  return memory;
}

/// Makes room for one more element in an array of `count`.
static void* grown(void* array, size_t count, size_t* room, size_t each) {
  if (count < *room) return array;
  *room = *room * 2 + 8;
  return need(realloc(array, *room * each));
}

static void resize(struct bytes* bytes, size_t size) {
  if (size > bytes->room) {
    bytes->room = size + size / 2;
    bytes->at = need(realloc(bytes->at, bytes->room));
  }
  if (size > bytes->size) memset(bytes->at + bytes->size, 0, size - bytes->size);
  bytes->size = size;
}

static void copy_bytes(struct bytes* to, const struct bytes* from) {
  resize(to, from->size);
  if (from->size > 0) memcpy(to->at, from->at, from->size);
}

static void copy_names(struct names* to, const struct names* from) {
  free(to->at);
  to->count = to->room = from->count;
  to->at = need(malloc(from->count * sizeof *to->at + 1));
  if (from->count > 0) memcpy(to->at, from->at, from->count * sizeof *to->at);
}

/// The node on which the caller runs: its process, which the calling thread belongs to.
static pid_t caller(void) {
  if (!has_nodes) return 0;
  char path[64], line[256];
  const pid_t thread = fuse_get_context()->pid;
  snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
  FILE* status = fopen(path, "re");
  long process = thread;
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (strncmp(line, "Tgid:", 5) == 0) process = strtol(line + 5, NULL, 10);
  }
  if (status != NULL) fclose(status);
  return (pid_t)process;
}

static void add_change(struct node* node, size_t from, size_t to) {
  const pid_t by = caller();
  struct change* last = node->change_count > 0 ? node->changes + node->change_count - 1 : NULL;
  if (last != NULL && last->by == by && last->from < last->to && last->to == from && from < to) {
    last->to = to;
    return;
  }
  node->changes =
      grown(node->changes, node->change_count, &node->change_room, sizeof *node->changes);
  node->changes[node->change_count++] = (struct change){from, to, by};
}

static void make_durable(struct node* node, const struct change* change) {
  if (change->from == change->to) {
    resize(&node->durable, change->from);
    return;
  }
  const size_t to = change->to < node->now.size ? change->to : node->now.size;
  if (to <= change->from) return;
  if (to > node->durable.size) resize(&node->durable, to);
  memcpy(node->durable.at + change->from, node->now.at + change->from, to - change->from);
}

static void sync_file(struct node* node) {
  const pid_t by = caller();
  size_t left = 0;
  for (size_t i = 0; i < node->change_count; ++i) {
    if (node->changes[i].by == by) {
      make_durable(node, &node->changes[i]);
    } else {
      node->changes[left++] = node->changes[i];
    }
  }
  node->change_count = left;
}

static void forget(bool names_too) {
  for (struct node* node = nodes; node != NULL; node = node->next) {
    copy_bytes(&node->now, &node->durable);
    node->change_count = 0;
    if (names_too) copy_names(&node->names_now, &node->names_durable);
  }
}

static struct entry* entry_of(const struct node* folder, const char* name, size_t length) {
  for (size_t i = 0; i < folder->names_now.count; ++i) {
    struct entry* entry = &folder->names_now.at[i];
    if (strlen(entry->name) == length && memcmp(entry->name, name, length) == 0) return entry;
  }
  return NULL;
}

/// NULL: no such name.
static struct node* find(const char* path, size_t length) {
  struct node* node = root;
  for (const char* end = path + length; node != NULL && path < end;) {
    const char* slash = memchr(path, '/', (size_t)(end - path));
    const size_t part = (size_t)((slash != NULL ? slash : end) - path);
    if (part > 0) {
      const struct entry* entry = entry_of(node, path, part);
      node = entry != NULL ? entry->node : NULL;
    }
    path += part + 1;
  }
  return node;
}

static struct node* node_of(const char* path, const struct fuse_file_info* file) {
  return file != NULL ? (struct node*)(uintptr_t)file->fh : find(path, strlen(path));
}

static const char* name_of(const char* path) { return strrchr(path, '/') + 1; }

static struct node* folder_of(const char* path) {
  return find(path, (size_t)(name_of(path) - path));
}

static struct entry* named(const char* path) {
  const struct node* folder = folder_of(path);
  return folder == NULL ? NULL : entry_of(folder, name_of(path), strlen(name_of(path)));
}

static void add_name(const char* path, struct node* node) {
  struct node* folder = folder_of(path);
  struct names* names = &folder->names_now;
  names->at = grown(names->at, names->count, &names->room, sizeof *names->at);
  struct entry* entry = &names->at[names->count++];
  snprintf(entry->name, sizeof entry->name, "%s", name_of(path));
  entry->node = node;
  ++node->stat.st_nlink;
  clock_gettime(CLOCK_REALTIME, &folder->stat.st_mtim);
}

static void drop_name(const char* path) {
  struct node* folder = folder_of(path);
  struct names* names = &folder->names_now;
  struct entry* entry = named(path);
  --entry->node->stat.st_nlink;
  memmove(entry, entry + 1, (size_t)(names->at + names->count - entry - 1) * sizeof *entry);
  --names->count;
  clock_gettime(CLOCK_REALTIME, &folder->stat.st_mtim);
}

static struct node* make_node(mode_t mode) {
  static ino_t number;
  struct node* node = need(calloc(1, sizeof *node));
  node->stat.st_ino = ++number;
  node->stat.st_mode = mode;
  clock_gettime(CLOCK_REALTIME, &node->stat.st_mtim);
  node->stat.st_atim = node->stat.st_ctim = node->stat.st_mtim;
  node->next = nodes;
  nodes = node;
  return node;
}

static int make(const char* path, mode_t mode, struct node** made) {
  if (folder_of(path) == NULL) return -ENOENT;
  if (named(path) != NULL) return -EEXIST;
  if (strlen(name_of(path)) > NAME_MAX) return -ENAMETOOLONG;
  *made = make_node(mode);
  (*made)->stat.st_uid = fuse_get_context()->uid;
  (*made)->stat.st_gid = fuse_get_context()->gid;
  add_name(path, *made);
  return 0;
}

static void* on_init(struct fuse_conn_info* connection, struct fuse_config* config) {
  (void)connection;
  config->use_ino = 1;
  config->hard_remove = 1;
  config->nullpath_ok = 1;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
  return NULL;
}

static int on_getattr(const char* path, struct stat* out, struct fuse_file_info* file) {
  const struct node* node = node_of(path, file);
  if (node == NULL) return -ENOENT;
  *out = node->stat;
  out->st_size = (off_t)(node->target != NULL ? strlen(node->target) : node->now.size);
  out->st_blocks = (out->st_size + 511) / 512;
  return 0;
}

static int on_readlink(const char* path, char* out, size_t room) {
  const struct node* node = node_of(path, NULL);
  if (node == NULL) return -ENOENT;
  snprintf(out, room, "%s", node->target);
  return 0;
}

static int on_mkdir(const char* path, mode_t mode) {
  struct node* made;
  return make(path, S_IFDIR | mode, &made);
}

static int on_symlink(const char* target, const char* path) {
  struct node* made;
  const int done = make(path, S_IFLNK | 0777, &made);
  if (done == 0) made->target = need(strdup(target));
  return done;
}

static int on_unlink(const char* path) {
  if (named(path) == NULL) return -ENOENT;
  drop_name(path);
  return 0;
}

static int on_rmdir(const char* path) {
  const struct entry* entry = named(path);
  if (entry == NULL) return -ENOENT;
  if (entry->node->names_now.count > 0) return -ENOTEMPTY;
  drop_name(path);
  return 0;
}

static int on_rename(const char* from, const char* to, unsigned flags) {
  if (flags != 0) return -EINVAL;
  const struct entry* entry = named(from);
  if (entry == NULL || folder_of(to) == NULL) return -ENOENT;
  struct node* node = entry->node;
  const struct entry* replaced = named(to);
  if (replaced != NULL && replaced->node == node) return 0;
  if (replaced != NULL && replaced->node->names_now.count > 0) return -ENOTEMPTY;
  if (replaced != NULL) drop_name(to);
  drop_name(from);
  add_name(to, node);
  return 0;
}

static int on_link(const char* from, const char* to) {
  struct node* node = node_of(from, NULL);
  if (node == NULL || folder_of(to) == NULL) return -ENOENT;
  if (named(to) != NULL) return -EEXIST;
  add_name(to, node);
  return 0;
}

static int on_chmod(const char* path, mode_t mode, struct fuse_file_info* file) {
  struct node* node = node_of(path, file);
  if (node == NULL) return -ENOENT;
  node->stat.st_mode = (node->stat.st_mode & S_IFMT) | (mode & 07777);
  return 0;
}

static int on_chown(const char* path, uid_t user, gid_t group, struct fuse_file_info* file) {
  struct node* node = node_of(path, file);
  if (node == NULL) return -ENOENT;
  if (user != (uid_t)-1) node->stat.st_uid = user;
  if (group != (gid_t)-1) node->stat.st_gid = group;
  return 0;
}

static int on_utimens(const char* path, const struct timespec times[2],
                      struct fuse_file_info* file) {
  struct node* node = node_of(path, file);
  if (node == NULL) return -ENOENT;
  struct timespec* const ours[2] = {&node->stat.st_atim, &node->stat.st_mtim};
  for (int i = 0; i < 2; ++i) {
    if (times[i].tv_nsec == UTIME_NOW) {
      clock_gettime(CLOCK_REALTIME, ours[i]);
    } else if (times[i].tv_nsec != UTIME_OMIT) {
      *ours[i] = times[i];
    }
  }
  return 0;
}

static int on_truncate(const char* path, off_t size, struct fuse_file_info* file) {
  struct node* node = node_of(path, file);
  if (node == NULL) return -ENOENT;
  resize(&node->now, (size_t)size);
  add_change(node, (size_t)size, (size_t)size);
  clock_gettime(CLOCK_REALTIME, &node->stat.st_mtim);
  return 0;
}

static int on_open(const char* path, struct fuse_file_info* file) {
  struct node* node = node_of(path, NULL);
  if (node == NULL) return -ENOENT;
  file->fh = (uintptr_t)node;
  return 0;
}

static int on_create(const char* path, mode_t mode, struct fuse_file_info* file) {
  struct node* made = NULL;
  const int done = make(path, S_IFREG | mode, &made);
  file->fh = (uintptr_t)made;
  return done;
}

static int on_read(const char* path, char* bytes, size_t count, off_t at,
                   struct fuse_file_info* file) {
  const struct node* node = node_of(path, file);
  const size_t left = (size_t)at < node->now.size ? node->now.size - (size_t)at : 0;
  if (count > left) count = left;
  if (count > 0) memcpy(bytes, node->now.at + at, count);
  return (int)count;
}

static int on_write(const char* path, const char* bytes, size_t count, off_t at,
                    struct fuse_file_info* file) {
  struct node* node = node_of(path, file);
  const size_t end = (size_t)at + count;
  if (end > node->now.size) resize(&node->now, end);
  memcpy(node->now.at + at, bytes, count);
  if (count > 0) add_change(node, (size_t)at, end);
  clock_gettime(CLOCK_REALTIME, &node->stat.st_mtim);
  return (int)count;
}

static int on_fsync(const char* path, int data_only, struct fuse_file_info* file) {
  (void)data_only;
  if (!ignores_files) sync_file(node_of(path, file));
  return 0;
}

static int on_fsyncdir(const char* path, int data_only, struct fuse_file_info* file) {
  (void)data_only;
  struct node* folder = node_of(path, file);
  if (!ignores_folders) copy_names(&folder->names_durable, &folder->names_now);
  return 0;
}

static int on_readdir(const char* path, void* out, fuse_fill_dir_t fill, off_t at,
                      struct fuse_file_info* file, enum fuse_readdir_flags flags) {
  (void)at, (void)flags;
  const struct names* names = &node_of(path, file)->names_now;
  fill(out, ".", NULL, 0, 0);
  fill(out, "..", NULL, 0, 0);
  for (size_t i = 0; i < names->count; ++i) fill(out, names->at[i].name, NULL, 0, 0);
  return 0;
}

static int on_statfs(const char* path, struct statvfs* out) {
  (void)path;
  out->f_bsize = out->f_frsize = 4096;
  out->f_blocks = out->f_bfree = out->f_bavail = 1 << 20;
  out->f_files = out->f_ffree = out->f_favail = 1 << 20;
  out->f_namemax = NAME_MAX;
  return 0;
}

static int on_setxattr(const char* path, const char* name, const char* value, size_t size,
                       int flags) {
  (void)flags;
  if (strcmp(path, "/") != 0 || strcmp(name, "user.forget") != 0) return -ENOTSUP;
  const bool all = size == 3 && memcmp(value, "all", 3) == 0;
  if (!all && !(size == 5 && memcmp(value, "bytes", 5) == 0)) return -EINVAL;
  forget(all);
  return 0;
}

static const struct fuse_operations operations = {
    .init = on_init,
    .getattr = on_getattr,
    .readlink = on_readlink,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .symlink = on_symlink,
    .rename = on_rename,
    .link = on_link,
    .chmod = on_chmod,
    .chown = on_chown,
    .truncate = on_truncate,
    .utimens = on_utimens,
    .open = on_open,
    .create = on_create,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .opendir = on_open,
    .fsyncdir = on_fsyncdir,
    .readdir = on_readdir,
    .statfs = on_statfs,
    .setxattr = on_setxattr,
};

int main(int count, char** arguments) {
  const char* mountpoint = NULL;
  bool good = true;
  for (int i = 1; i < count; ++i) {
    if (strcmp(arguments[i], "--nodes") == 0) {
      has_nodes = true;
    } else if (strcmp(arguments[i], "--ignore-sync") == 0 && i + 1 < count) {
      ++i;
      ignores_files |= strcmp(arguments[i], "files") == 0;
      ignores_folders |= strcmp(arguments[i], "folders") == 0;
      good &= ignores_files || ignores_folders;
    } else {
      good &= mountpoint == NULL;
      mountpoint = arguments[i];
    }
  }
  if (!good || mountpoint == NULL) {
    fprintf(stderr, "usage: forgetful-fs [--nodes] [--ignore-sync files|folders] MOUNTPOINT\n");
    return 2;
  }
  umask(0);
  root = make_node(S_IFDIR | 0755);
  root->stat.st_uid = getuid();
  root->stat.st_gid = getgid();
  // -s: a single thread, so nothing here is locked.
  char* words[] = {arguments[0], "-f", "-s", "-o", "default_permissions", (char*)mountpoint, NULL};
  return fuse_main(6, words, &operations, NULL);
}
