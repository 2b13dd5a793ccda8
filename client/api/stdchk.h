/* stdchk: checkpoint images in the memory of other nodes. The C interface.
 *
 * Results: functions that return int return 0 on success. On failure they, and functions that
 * return a count, return -1 and set errno. Functions that return a pointer return NULL and set
 * errno. stdchk_error() has a sentence about the calling thread's last failure, stdchk_error_code()
 * its stable number. Every call ends in bounded time, with ETIMEDOUT or EIO if necessary.
 *
 * Threads: all functions may be called from any thread, and calls on one stdchk_pool, stdchk_file
 * or stdchk_queue may overlap. The program must not use an object during or after the call that
 * ends it (stdchk_disconnect, stdchk_close, stdchk_abort, stdchk_closedir, stdchk_queue_destroy). A
 * stdchk_dir belongs to one thread at a time. After fork(2) only the parent may use a pool and what
 * belongs to it; the child connects anew. No function may be called by a signal handler.
 *
 * Paths begin at the root of the pool, with or without a leading '/'. Symbolic links are followed,
 * except by the functions that say otherwise. A link with an absolute target leads out of the pool:
 * such a path fails with EXDEV.
 *
 * A file becomes visible to others when it is closed or synced. For an image, a file with a name of
 * the form A.Ni.Tj, stdchk_sync only waits until its bytes are stored. See stdchk(3) and
 * docs/guide/c-library.md.
 */
#ifndef STDCHK_H
#define STDCHK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stdchk_pool stdchk_pool;
typedef struct stdchk_file stdchk_file;
typedef struct stdchk_dir stdchk_dir;
typedef struct stdchk_queue stdchk_queue;

struct stdchk_options {
  size_t size;             /* sizeof(struct stdchk_options), so that later fields can be told */
  const char* manager;     /* "tcp:HOST:PORT", or the path of a file that holds it; NULL:
                              $STDCHK_MANAGER */
  const char* secret_file; /* pool's secret, or a client's key; NULL: $STDCHK_SECRET_FILE */
  const char* transport;   /* NULL: "auto" */
  uint64_t window_bytes;   /* buffers between write and storage; 0: 64 MiB */
  uint64_t cache_bytes;    /* for chunks read ahead or read recently; 0: a quarter of the window */
  int naming;       /* names of chunks: -1: the pool's setting; 0: off; 1: on; 2: while it pays */
  int close_early;  /* 1: close returns before the image is stored. At most 60 s later the
                       image is stored or lost. A loss is reported once, by this process's
                       next open of the file */
  int content_cuts; /* -1: the pool's setting; 1: chunks end where their content says; 0: fixed
                       length */
  const char* key_file; /* the pool's key for encrypted images; NULL: $STDCHK_KEY_FILE, or none */
  int encrypt;          /* 1: store images so that benefactors cannot read them; needs the key */
};

/* Fills in the defaults. */
void stdchk_options_init(struct stdchk_options* options);

/* Returns NULL, with errno set, when the pool cannot be reached. `options` may be NULL. */
stdchk_pool* stdchk_connect(const struct stdchk_options* options);
/* Close all files before. Otherwise what they have not committed is dropped. */
void stdchk_disconnect(stdchk_pool* pool);

/* Opens `path`, which begins at the root of the pool, with or without a leading '/'. `flags` are
 * those of open(2): O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND. `mode` is used
 * with O_CREAT. Returns NULL, with errno set, on failure. */
stdchk_file* stdchk_open(stdchk_pool* pool, const char* path, int flags, mode_t mode);

/* Write or read at the file's position, and move it. */
ssize_t stdchk_write(stdchk_file* file, const void* bytes, size_t count);
ssize_t stdchk_read(stdchk_file* file, void* bytes, size_t count);
/* Write or read at `offset`. The file's position stays. */
ssize_t stdchk_pwrite(stdchk_file* file, const void* bytes, size_t count, uint64_t offset);
ssize_t stdchk_pread(stdchk_file* file, void* bytes, size_t count, uint64_t offset);
/* Write or read several buffers, one after the other, from `offset` on. At most 1024 buffers. With
 * O_APPEND, bytes of other writers may come between two buffers. After a failed stdchk_pwritev some
 * of the buffers may be written: write them again, or call stdchk_abort. */
ssize_t stdchk_pwritev(stdchk_file* file, const struct iovec* buffers, int count, uint64_t offset);
ssize_t stdchk_preadv(stdchk_file* file, const struct iovec* buffers, int count, uint64_t offset);
int stdchk_truncate(stdchk_file* file, uint64_t size);

/* Writing without a copy. stdchk_reserve returns a buffer for the bytes at the file's position, and
 * sets `*count` to its length, which is at most the old `*count`. With O_APPEND the position is the
 * present end of the file; nobody else may append before the submit. Fill the buffer, then submit
 * the number of bytes filled, or 0 to give the buffer up. The position moves by that number. After
 * stdchk_submit the buffer belongs to the library again. If `count` exceeds the reservation,
 * stdchk_submit fails with EINVAL and the reservation stays. If it fails with another error, the
 * reservation has ended, the position stays, and so the file cannot be committed any more.
 *
 * A file has one reservation at a time. Until it is submitted, stdchk_write, stdchk_read,
 * stdchk_reserve and stdchk_sync of that stdchk_file fail with EBUSY at once. A sync through
 * another stdchk_file of the same file waits for it. stdchk_close and stdchk_abort drop the
 * reservation. */
void* stdchk_reserve(stdchk_file* file, size_t* count);
int stdchk_submit(stdchk_file* file, size_t count);

/* Works as fsync(2); for images see above. */
int stdchk_sync(stdchk_file* file);
/* Makes all that was written visible at once, and ends `file`, even if it fails. */
int stdchk_close(stdchk_file* file);
/* Drops what is not committed, and ends `file`. */
void stdchk_abort(stdchk_file* file);

/* ---- names and attributes ---- */

enum stdchk_drain_state {
  STDCHK_DRAIN_NONE = 0,    /* no drain directory, nothing committed, or left out by the policy */
  STDCHK_DRAIN_PENDING = 1, /* waits for its turn */
  STDCHK_DRAIN_RUNNING = 2,
  STDCHK_DRAIN_DONE = 3,   /* whole in the drain directory, durable and verified */
  STDCHK_DRAIN_FAILED = 4, /* will be tried again */
};

struct stdchk_attributes {
  uint64_t id;   /* the same for the whole life of the file */
  uint32_t mode; /* type and permission bits, as st_mode */
  uint32_t uid;
  uint32_t gid;
  uint32_t links;
  uint64_t size_bytes;
  uint64_t stored_bytes; /* without holes */
  uint64_t version;      /* grows with each commit */
  int64_t atime_ns;      /* since 1970 */
  int64_t mtime_ns;
  int64_t ctime_ns;
  int32_t drain_state; /* enum stdchk_drain_state */
  uint32_t reserved[7];
};

int stdchk_stat(stdchk_pool* pool, const char* path, struct stdchk_attributes* out);
/* Does not follow `path` itself, if it is a symbolic link. */
int stdchk_lstat(stdchk_pool* pool, const char* path, struct stdchk_attributes* out);
/* Shows the file as its opener sees it, with bytes that are not committed. */
int stdchk_fstat(stdchk_file* file, struct stdchk_attributes* out);

struct stdchk_entry {
  const char* name;
  struct stdchk_attributes attributes;
};
/* Takes a list of the folder's entries, without "." and "..", sorted by name. */
stdchk_dir* stdchk_opendir(stdchk_pool* pool, const char* path);
/* Returns the next entry, valid until stdchk_closedir; NULL behind the last one. Leaves errno. */
const struct stdchk_entry* stdchk_readdir(stdchk_dir* dir);
void stdchk_closedir(stdchk_dir* dir);

int stdchk_mkdir(stdchk_pool* pool, const char* path, mode_t mode);
int stdchk_rmdir(stdchk_pool* pool, const char* path);
int stdchk_unlink(stdchk_pool* pool, const char* path);
/* `flags` are those of renameat2(2): 0, RENAME_NOREPLACE or RENAME_EXCHANGE. */
int stdchk_rename(stdchk_pool* pool, const char* from, const char* to, unsigned flags);
int stdchk_symlink(stdchk_pool* pool, const char* target, const char* path);
/* Works as readlink(2): returns the number of bytes, does not end them with a zero. */
ssize_t stdchk_readlink(stdchk_pool* pool, const char* path, char* target, size_t size);
int stdchk_chmod(stdchk_pool* pool, const char* path, mode_t mode);
/* An id of -1 stays as it is. */
int stdchk_chown(stdchk_pool* pool, const char* path, uid_t uid, gid_t gid);
/* Does not follow `path` itself, if it is a symbolic link. */
int stdchk_lchown(stdchk_pool* pool, const char* path, uid_t uid, gid_t gid);
/* A time of INT64_MIN stays as it is. */
int stdchk_utimens(stdchk_pool* pool, const char* path, int64_t atime_ns, int64_t mtime_ns);
/* Does not follow `path` itself, if it is a symbolic link. */
int stdchk_lutimens(stdchk_pool* pool, const char* path, int64_t atime_ns, int64_t mtime_ns);

/* Extended attributes work as getxattr(2), setxattr(2), listxattr(2) and removexattr(2). `size` 0
 * asks for the size only. */
ssize_t stdchk_getxattr(stdchk_pool* pool, const char* path, const char* name, void* value,
                        size_t size);
int stdchk_setxattr(stdchk_pool* pool, const char* path, const char* name, const void* value,
                    size_t size, int flags);
ssize_t stdchk_listxattr(stdchk_pool* pool, const char* path, char* names, size_t size);
int stdchk_removexattr(stdchk_pool* pool, const char* path, const char* name);

struct stdchk_space {
  uint64_t total_bytes;         /* memory that the benefactors lend */
  uint64_t free_bytes;          /* not used and not granted */
  uint64_t evictable_bytes;     /* used by drained images only */
  uint64_t logical_bytes;       /* of all files */
  uint64_t stored_bytes;        /* equal chunks once; without copies and parity */
  uint64_t files;               /* folders count, too */
  uint64_t drain_pending_files; /* not drained yet */
  uint64_t drain_pending_bytes;
  uint64_t drain_failed_files; /* of the pending files; they will be tried again */
  uint64_t debt_bytes;         /* of copies that the policy asks for and that are not made yet */
  uint64_t reserved[6];
};
int stdchk_statfs(stdchk_pool* pool, struct stdchk_space* out);

/* ---- sets, policy, and what is safe ---- */

enum stdchk_set_flags {
  STDCHK_SET_COMPLETE = 1,
  STDCHK_SET_PINNED = 2,
  STDCHK_SET_LATEST = 4, /* the newest complete set of its application */
};

/* A set is all images A.*.Tj of one application and timestep in one folder. By the settings "set",
 * "series" and "marker" of a folder, sets are directories, or files with other names. */
struct stdchk_set {
  char name[320];        /* "A.*.Tj", or the name of the directory, or of files such as "a.*.7" */
  char application[256]; /* empty where the name is not "A.*.Tj" */
  uint64_t timestep;     /* 0 where the name is not "A.*.Tj" */
  uint64_t images;
  uint64_t images_wanted; /* images of a whole set, by the policy `images`; 0: not known */
  uint64_t drained;       /* images that are drained */
  uint64_t size_bytes;
  int64_t newest_ns; /* when its newest image was committed, since 1970 */
  uint32_t flags;    /* enum stdchk_set_flags */
  uint32_t reserved[7];
};
/* Lists the sets of a folder, the newest first. Returns their number. stdchk_free() frees `*sets`.
 */
ssize_t stdchk_set_list(stdchk_pool* pool, const char* folder, struct stdchk_set** sets);
/* Finds the newest complete set of `application`; NULL: of any. ENOENT: there is none. */
int stdchk_set_latest(stdchk_pool* pool, const char* folder, const char* application,
                      struct stdchk_set* out);
/* Keeps a set from being removed by the policy, or ends that with `pin` 0. `set` is its name. */
int stdchk_set_pin(stdchk_pool* pool, const char* folder, const char* set, int pin);
/* Says that all files of a set are written, where sets are directories. A marker does the same. */
int stdchk_set_commit(stdchk_pool* pool, const char* directory);
void stdchk_free(void* memory);

/* Changes settings of a folder: "keep=3 purge-after=12h preset=dcp"; `stdchk policy get` lists the
 * keys. Settings take effect one after the other: if a later setting fails, the earlier ones stay. */
int stdchk_policy_set(stdchk_pool* pool, const char* folder, const char* settings);
/* Writes the value in force, such as "12h", with a zero at its end. Returns its length. */
ssize_t stdchk_policy_get(stdchk_pool* pool, const char* path, const char* key, char* value,
                          size_t size);

struct stdchk_safety {
  int32_t safe; /* 1: all files are on the parallel file system, verified by this call */
  int32_t reserved0;
  uint64_t files;
  uint64_t unsafe_files;
  uint64_t missing_files; /* of these: removed or changed in the drain directory by others */
  char first_unsafe[1024];
};
/* Looks up the file, or all files below the folder, in the drain directory. The first call of a new
   pool has files compared with their checksums, and may fail with EBUSY meanwhile: call again. */
int stdchk_safe(stdchk_pool* pool, const char* path, struct stdchk_safety* out);

enum stdchk_wait_flags {
  STDCHK_WAIT_COPIES = 1, /* all copies, or the parity, that the policy asks for */
  STDCHK_WAIT_DRAIN = 2,  /* everything is drained */
};
/* Puts the files at or below `path` at the head of the drain's queue, and returns at once. */
int stdchk_drain(stdchk_pool* pool, const char* path);
/* Waits until the committed files at or below `path` have what `flags` say. ETIMEDOUT: not within
 * `timeout_ms`. EIO: the drain of a file fails again and again. */
int stdchk_wait(stdchk_pool* pool, const char* path, unsigned flags, unsigned timeout_ms);

/* ---- asynchronous calls ----
 *
 * A queue runs calls in threads of its own and keeps the results until stdchk_queue_wait fetches
 * them. The caller's memory belongs to the library from the call until its completion is fetched.
 * Calls on one file overlap and end in any order. A sync or close of a file runs after all calls on
 * that file that were queued before it, and before all later ones. */

struct stdchk_completion {
  void* tag;         /* the tag of the call */
  ssize_t result;    /* as the blocking call returns it */
  int error;         /* errno; 0 on success */
  int code;          /* enum stdchk_code */
  char message[240]; /* a sentence about the failure; empty on success */
};

/* `depth`: calls and results that the queue holds at most, 1 to 4096. `threads`: 1 to 64; 0 takes
 * the number of processors, at most 4. */
stdchk_queue* stdchk_queue_create(stdchk_pool* pool, unsigned depth, unsigned threads);
/* Fails with EBUSY while a call runs or waits, or a result was not fetched. */
int stdchk_queue_destroy(stdchk_queue* queue);
/* These four fail with EAGAIN when the queue is full. stdchk_queue_close ends `file`. */
int stdchk_queue_pwrite(stdchk_queue* queue, stdchk_file* file, const void* bytes, size_t count,
                        uint64_t offset, void* tag);
int stdchk_queue_pread(stdchk_queue* queue, stdchk_file* file, void* bytes, size_t count,
                       uint64_t offset, void* tag);
int stdchk_queue_sync(stdchk_queue* queue, stdchk_file* file, void* tag);
int stdchk_queue_close(stdchk_queue* queue, stdchk_file* file, void* tag);
/* Waits until a result is there, the queue is empty, or `timeout_ms` have passed. Returns the
 * number of results, at most `count`; 0: the queue is empty, or the time has passed. */
int stdchk_queue_wait(stdchk_queue* queue, struct stdchk_completion* out, int count,
                      unsigned timeout_ms);
/* Returns a descriptor for poll(2) that is readable while results are there. Do not read it. */
int stdchk_queue_descriptor(stdchk_queue* queue);

/* ---- errors ---- */

/* Numbers of errors. They never change their meaning; later versions may add more. */
enum stdchk_code {
  STDCHK_ERROR_NONE = 0,
  STDCHK_ERROR_INTERNAL = 1,
  STDCHK_ERROR_INVALID_ARGUMENT = 2,
  STDCHK_ERROR_NOT_FOUND = 3,
  STDCHK_ERROR_EXISTS = 4,
  STDCHK_ERROR_NOT_DIRECTORY = 5,
  STDCHK_ERROR_IS_DIRECTORY = 6,
  STDCHK_ERROR_NOT_EMPTY = 7,
  STDCHK_ERROR_NAME_TOO_LONG = 8,
  STDCHK_ERROR_PERMISSION = 9,
  STDCHK_ERROR_NO_SPACE = 10,
  STDCHK_ERROR_DEADLINE = 11,
  STDCHK_ERROR_PEER_LOST = 12,
  STDCHK_ERROR_MANAGER_LOST = 13,
  STDCHK_ERROR_REFUSED = 14,
  STDCHK_ERROR_FENCED = 15,
  STDCHK_ERROR_STALE = 16,
  STDCHK_ERROR_CORRUPT = 17,
  STDCHK_ERROR_DATA_LOST = 18,
  STDCHK_ERROR_TOO_LARGE = 19,
  STDCHK_ERROR_NO_MEMORY = 20,
  STDCHK_ERROR_MEMLOCK = 21,
  STDCHK_ERROR_UNSUPPORTED = 22,
  STDCHK_ERROR_MALFORMED = 23,
  STDCHK_ERROR_SYSTEM = 24,
  STDCHK_ERROR_BUSY = 25,
  STDCHK_ERROR_CROSSES_DIRECTORY = 26,
  STDCHK_ERROR_READ_ONLY = 27,
  STDCHK_ERROR_NO_ATTRIBUTE = 28,
  STDCHK_ERROR_RANGE = 29,
  STDCHK_ERROR_CONFIG = 30,
  STDCHK_ERROR_CANCELLED = 31,
  STDCHK_ERROR_DRAIN_FAILED = 32,
  STDCHK_ERROR_WOULD_BLOCK = 33,
};

/* Returns a sentence about this thread's last failure: what failed, why, what to do. Never NULL;
 * valid until the thread's next call. */
const char* stdchk_error(void);
/* Returns the enum stdchk_code of this thread's last failure. */
int stdchk_error_code(void);
/* Returns the name of a code, such as "NoSpace", and a sentence about it. Never NULL. */
const char* stdchk_code_name(int code);
const char* stdchk_code_sentence(int code);
/* Returns 1 when the same call may succeed later, otherwise 0. */
int stdchk_code_is_transient(int code);
/* Returns the version of the library, such as "0.1.0". */
const char* stdchk_version(void);

#ifdef __cplusplus
}
#endif

#endif
