// A FUSE file system that shows another directory. While it is mounted, rules can make it slow or
// make it hang.
//    troubled-fs DIRECTORY CONTROL MOUNTPOINT
// CONTROL is a file outside of it, read before each operation that it may concern. Each line is a
// rule:
//    delay MS       each write takes MS milliseconds longer
//    write BYTES    a write that begins with BYTES hangs while the rule exists
//    rename PATH    a rename to a path that begins with PATH hangs
//    sync           an fsync or fdatasync of a file hangs
//    fsync BYTES    an fsync of a file that begins with BYTES hangs
//    read BYTES     a read of bytes that begin with BYTES hangs; it returns the content at its end
//    flush BYTES    a close of a file that begins with BYTES fails with ENOSPC
// Each hanging operation adds one line to CONTROL.held: the kind of the rule and the inode.
// Runs in the foreground until it is unmounted or killed.

#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char* control_file;
static int below = -1;  // the shown directory

static int result(long value) { return value < 0 ? -errno : (int)value; }

static const char* relative(const char* path) { return path[1] == 0 ? "." : path + 1; }

/// The argument of the first rule of that kind which is a prefix of `bytes`, copied to `line`. With
/// `bytes` NULL, the first rule of that kind. NULL: none.
static char* rule(const char* kind, const char* bytes, size_t count, char* line, int room) {
  FILE* rules = fopen(control_file, "re");
  char* found = NULL;
  while (rules != NULL && found == NULL && fgets(line, room, rules) != NULL) {
    line[strcspn(line, "\n")] = 0;
    const size_t length = strlen(kind);
    if (strncmp(line, kind, length) != 0) continue;
    char* argument = line + length + (line[length] == ' ');
    if (bytes == NULL ||
        (count >= strlen(argument) && memcmp(bytes, argument, strlen(argument)) == 0))
      found = argument;
  }
  if (rules != NULL) fclose(rules);
  return found;
}

static void tell_of(const char* kind, int fd) {
  char path[4096];
  struct stat status = {0};
  snprintf(path, sizeof path, "%s.held", control_file);
  FILE* told = fopen(path, "ae");
  if (told == NULL) return;
  if (fd >= 0) fstat(fd, &status);
  fprintf(told, "%s %llu\n", kind, (unsigned long long)status.st_ino);
  fclose(told);
}

/// `fd`: the file concerned, or -1.
static void hang_while(const char* kind, const char* bytes, size_t count, int fd) {
  char line[256];
  for (int turn = 0; rule(kind, bytes, count, line, sizeof line) != NULL; ++turn) {
    if (turn == 0) tell_of(kind, fd);
    usleep(20000);
  }
}

static void* on_init(struct fuse_conn_info* connection, struct fuse_config* config) {
  // Many background requests, so that hanging read-aheads delay no other file.
  connection->max_background = 1000;
  config->use_ino = 1;
  config->hard_remove = 1;
  // Operations on open files need no path, so a hanging one does not block renames and removals.
  config->nullpath_ok = 1;
  config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
  return NULL;
}

static int on_getattr(const char* path, struct stat* out, struct fuse_file_info* file) {
  return result(file != NULL ? fstat((int)file->fh, out)
                             : fstatat(below, relative(path), out, AT_SYMLINK_NOFOLLOW));
}

static int on_readlink(const char* path, char* out, size_t room) {
  const ssize_t length = readlinkat(below, relative(path), out, room - 1);
  if (length < 0) return -errno;
  out[length] = 0;
  return 0;
}

static int on_mkdir(const char* path, mode_t mode) {
  return result(mkdirat(below, relative(path), mode));
}
static int on_unlink(const char* path) { return result(unlinkat(below, relative(path), 0)); }
static int on_rmdir(const char* path) {
  return result(unlinkat(below, relative(path), AT_REMOVEDIR));
}
static int on_symlink(const char* target, const char* path) {
  return result(symlinkat(target, below, relative(path)));
}

static int on_rename(const char* from, const char* to, unsigned flags) {
  if (flags != 0) return -EINVAL;
  hang_while("rename", relative(to), strlen(relative(to)), -1);
  return result(renameat(below, relative(from), below, relative(to)));
}

static int on_link(const char* from, const char* to) {
  return result(linkat(below, relative(from), below, relative(to), 0));
}

static int on_chmod(const char* path, mode_t mode, struct fuse_file_info* file) {
  return result(file != NULL ? fchmod((int)file->fh, mode)
                             : fchmodat(below, relative(path), mode, 0));
}

static int on_chown(const char* path, uid_t user, gid_t group, struct fuse_file_info* file) {
  return result(file != NULL ? fchown((int)file->fh, user, group)
                             : fchownat(below, relative(path), user, group, AT_SYMLINK_NOFOLLOW));
}

static int on_truncate(const char* path, off_t size, struct fuse_file_info* file) {
  if (file != NULL) return result(ftruncate((int)file->fh, size));
  const int fd = openat(below, relative(path), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -errno;
  const int answer = result(ftruncate(fd, size));
  close(fd);
  return answer;
}

static int on_utimens(const char* path, const struct timespec times[2],
                      struct fuse_file_info* file) {
  return result(file != NULL ? futimens((int)file->fh, times)
                             : utimensat(below, relative(path), times, AT_SYMLINK_NOFOLLOW));
}

static int opened(int fd, struct fuse_file_info* file) {
  if (fd < 0) return -errno;
  file->fh = (uint64_t)fd;
  return 0;
}

static int on_open(const char* path, struct fuse_file_info* file) {
  return opened(openat(below, relative(path), file->flags | O_NOFOLLOW | O_CLOEXEC), file);
}

static int on_create(const char* path, mode_t mode, struct fuse_file_info* file) {
  return opened(openat(below, relative(path), file->flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode),
                file);
}

static int on_read(const char* path, char* bytes, size_t count, off_t at,
                   struct fuse_file_info* file) {
  (void)path;
  const ssize_t found = pread((int)file->fh, bytes, count, at);
  if (found > 0) hang_while("read", bytes, (size_t)found, (int)file->fh);
  return result(pread((int)file->fh, bytes, count, at));
}

static int on_write(const char* path, const char* bytes, size_t count, off_t at,
                    struct fuse_file_info* file) {
  (void)path;
  char line[256];
  const char* delay = rule("delay", NULL, 0, line, sizeof line);
  if (delay != NULL) usleep((useconds_t)strtoul(delay, NULL, 10) * 1000);
  hang_while("write", bytes, count, (int)file->fh);
  return result(pwrite((int)file->fh, bytes, count, at));
}

static int on_flush(const char* path, struct fuse_file_info* file) {
  (void)path;
  char start[64], line[256];
  snprintf(line, sizeof line, "/proc/self/fd/%d", (int)file->fh);
  // opens again, because the file may be open for writing only
  const int fd = open(line, O_RDONLY | O_CLOEXEC);
  const ssize_t count = fd < 0 ? -1 : pread(fd, start, sizeof start, 0);
  if (fd >= 0) close(fd);
  return count > 0 && rule("flush", start, (size_t)count, line, sizeof line) != NULL ? -ENOSPC : 0;
}

static int on_release(const char* path, struct fuse_file_info* file) {
  (void)path;
  return result(close((int)file->fh));
}

static int on_fsync(const char* path, int data_only, struct fuse_file_info* file) {
  (void)path;
  hang_while("sync", NULL, 0, (int)file->fh);
  char start[64];
  const ssize_t count = data_only ? 0 : pread((int)file->fh, start, sizeof start, 0);
  if (count > 0) hang_while("fsync", start, (size_t)count, (int)file->fh);
  return result(data_only ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static off_t on_lseek(const char* path, off_t at, int whence, struct fuse_file_info* file) {
  (void)path;
  const off_t found = lseek((int)file->fh, at, whence);
  return found < 0 ? -errno : found;
}

static int on_opendir(const char* path, struct fuse_file_info* file) {
  return opened(openat(below, relative(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC), file);
}

static int on_readdir(const char* path, void* out, fuse_fill_dir_t fill, off_t at,
                      struct fuse_file_info* file, enum fuse_readdir_flags flags) {
  (void)path, (void)at, (void)flags;
  // A new descriptor each time, because each call reads the directory from its start.
  DIR* folder = fdopendir(openat((int)file->fh, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder == NULL) return -errno;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;)
    fill(out, entry->d_name, NULL, 0, 0);
  closedir(folder);
  return 0;
}

static int on_statfs(const char* path, struct statvfs* out) {
  (void)path;
  return result(fstatvfs(below, out));
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
    .flush = on_flush,
    .release = on_release,
    .fsync = on_fsync,
    .lseek = on_lseek,
    .opendir = on_opendir,
    .readdir = on_readdir,
    .releasedir = on_release,
    .statfs = on_statfs,
};

int main(int count, char** arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: troubled-fs DIRECTORY CONTROL MOUNTPOINT\n");
    return 2;
  }
  below = open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (below < 0) {
    perror(arguments[1]);
    return 1;
  }
  control_file = arguments[2];
  umask(0);
  // Each hanging operation holds a thread; the other operations need threads, too.
  char* words[] = {arguments[0], "-f", "-o", "default_permissions,max_threads=200",
                   arguments[3], NULL};
  return fuse_main(5, words, &operations, NULL);
}
