/* stdchk: checkpoint images in the memory of other nodes. The C interface.
 *
 * Functions that return int return 0 on success. On failure they, and functions that return a
 * count, return -1 and set errno. stdchk_error() has a sentence about the calling thread's last
 * failure. All functions may be called from any thread; calls on one file may overlap. Every call
 * ends in bounded time, with ETIMEDOUT or EIO if necessary.
 *
 * A file becomes visible to others when it is closed or synced. For an image, a file with a name of
 * the form A.Ni.Tj, stdchk_sync only waits until its bytes are stored. See stdchk(1) and the
 * README.
 */
#ifndef STDCHK_H
#define STDCHK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stdchk_pool stdchk_pool;
typedef struct stdchk_file stdchk_file;

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

/* Returns a sentence about this thread's last failure: what failed, why, what to do. Never NULL;
 * valid until the thread's next call. */
const char* stdchk_error(void);

#ifdef __cplusplus
}
#endif

#endif
