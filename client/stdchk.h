/* stdchk: checkpoint images in the memory of other nodes. The C interface.
 *
 * Functions that return int answer 0, or -1 with errno set; those that return a count answer -1
 * with errno set. stdchk_error() has a sentence about the calling thread's last failure. All
 * functions may be called from any thread; calls on one file may overlap. Every call ends in
 * bounded time: ETIMEDOUT or EIO, never a hang.
 *
 * A file is visible to others when it was closed, or synced unless its name is of the form A.Ni.Tj
 * (an image): then stdchk_sync only waits until its bytes are stored. See stdchk(1) and the README.
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
  const char* secret_file; /* 32 hexadecimal digits; NULL: $STDCHK_SECRET_FILE */
  const char* transport;   /* NULL: "auto" */
  uint64_t window_bytes;   /* between write and storage; 0: 64 MiB */
  uint64_t cache_bytes;    /* chunks read ahead or lately read; 0: a quarter of the window */
  int naming;              /* -1: the pool's; 0: off; 1: on; 2: as long as it finds chunks again */
  int close_early;         /* 1: close returns before the image is stored; it is 60 s later at most,
                              or lost, which the next open of the file in this process says, once */
  int content_cuts; /* -1: the pool's; 1: chunks end where their content says; 0: fixed length */
  const char* key_file; /* the pool's key, which opens encrypted images; NULL: $STDCHK_KEY_FILE, or
                           none */
  int encrypt;          /* 1: store images so that benefactors cannot read them; needs the key */
};

/* Fills in the defaults. */
void stdchk_options_init(struct stdchk_options* options);

/* NULL with errno set when the pool cannot be reached. `options` may be NULL. */
stdchk_pool* stdchk_connect(const struct stdchk_options* options);
/* All files must be closed before. What they had not committed is dropped otherwise. */
void stdchk_disconnect(stdchk_pool* pool);

/* `path` from the root of the pool, with or without a leading '/'. `flags` as of open(2): O_RDONLY,
 * O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND. `mode` is used with O_CREAT. */
stdchk_file* stdchk_open(stdchk_pool* pool, const char* path, int flags, mode_t mode);

/* At the file's own position, which they move. */
ssize_t stdchk_write(stdchk_file* file, const void* bytes, size_t count);
ssize_t stdchk_read(stdchk_file* file, void* bytes, size_t count);
/* At `offset`; the position stays. */
ssize_t stdchk_pwrite(stdchk_file* file, const void* bytes, size_t count, uint64_t offset);
ssize_t stdchk_pread(stdchk_file* file, void* bytes, size_t count, uint64_t offset);
int stdchk_truncate(stdchk_file* file, uint64_t size);

/* Writing without a copy: a buffer for at most `*count` bytes of the file at its position, which
 * with O_APPEND is the file's end as it is now; nobody else may append before the submit. `*count`
 * becomes the bytes that the buffer has. Fill it, then submit what was filled, or 0 bytes to give
 * it up: the position moves by that. The buffer is the library's again after stdchk_submit, unless
 * that answers EINVAL, because `count` was larger than what is reserved: then it stays reserved.
 *
 * One reservation at a time for each file. Until it is submitted, stdchk_write, stdchk_read,
 * stdchk_reserve and stdchk_sync of that stdchk_file answer EBUSY at once; a sync through another
 * stdchk_file of the same file waits for it. stdchk_close and stdchk_abort drop it. */
void* stdchk_reserve(stdchk_file* file, size_t* count);
int stdchk_submit(stdchk_file* file, size_t count);

/* As fsync(2), see above. */
int stdchk_sync(stdchk_file* file);
/* Makes what was written visible, all at once, and ends `file`, whatever it answers. */
int stdchk_close(stdchk_file* file);
/* Drops what was not committed, and ends `file`. */
void stdchk_abort(stdchk_file* file);

/* A sentence about the last failure in this thread: what, why, what to do. Never NULL; valid until
 * the thread's next call. */
const char* stdchk_error(void);

#ifdef __cplusplus
}
#endif

#endif
