/* stdchk_map: the bytes of an image as memory that is fetched on demand. The C interface.
 *
 * The program's host must run stdchk-pager. A page is fetched when the program touches it for the
 * first time. All programs of a host that map the same image share what was fetched. Writes stay
 * private to the program, as with mmap(2) and MAP_PRIVATE.
 *
 * Functions that return int return 0 on success. On failure they return -1 and set errno.
 * stdchk_map_error() has a sentence about the calling thread's last failure. All functions may be
 * called from any thread.
 *
 * A page that cannot be fetched ends the access with SIGBUS, as an input error of a mapped file
 * does. The log of stdchk-pager says which page of which image it was, and why.
 *
 * Limits of userfaultfd(2):
 * - Without the right to use /dev/userfaultfd, and where vm.unprivileged_userfaultfd is 0, a system
 *   call that reads from or writes to a page that was not fetched fails with EFAULT. Touch such
 *   pages before the call, for example with stdchk_map_fetch().
 * - A child of fork(2) does not have the mapping, unless STDCHK_MAP_FOLLOW_FORK was given.
 */
#ifndef STDCHK_MAP_H
#define STDCHK_MAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  /* A child of fork(2) gets the mapping, too. Needs CAP_SYS_PTRACE. */
  STDCHK_MAP_FOLLOW_FORK = 1,
  /* `image` is a label for messages. The bytes come from the open file `source`. */
  STDCHK_MAP_FROM_FILE = 2,
};

struct stdchk_map_options {
  size_t size;        /* sizeof(struct stdchk_map_options), so that later fields can be told */
  const char* socket; /* of stdchk-pager; NULL: $STDCHK_PAGER, or else
                         $XDG_RUNTIME_DIR/stdchk-pager.socket */
  void* address;      /* where to map, replacing what is there as MAP_FIXED does; NULL: anywhere */
  uint64_t offset;    /* of the first byte of the image; a multiple of the page size */
  uint64_t length;    /* bytes to map; 0: up to the end of the image */
  int protection;     /* PROT_READ, or PROT_READ | PROT_WRITE */
  unsigned flags;     /* STDCHK_MAP_... */
  int source;         /* with STDCHK_MAP_FROM_FILE: a regular file or memfd, open for reading, whose
                         content does not change while anybody has it mapped */
};

/* Fills in the defaults: the whole image, anywhere, readable and writable. */
void stdchk_map_options_init(struct stdchk_map_options* options);

/* Maps the newest version of the image `image`, a path that begins at the root of the pool. Sets
 * `*length`, unless NULL, to the number of mapped bytes; bytes of the last page behind them are 0.
 * Returns NULL, with errno set, on failure. `options` may be NULL. Fails in bounded time, with
 * ETIMEDOUT if necessary. */
void* stdchk_map_image(const char* image, const struct stdchk_map_options* options, size_t* length);

/* Fetches a range of a mapping before the program touches it, and waits until it is there. Returns
 * -1 with EIO when a page of it cannot be fetched. The program gets no SIGBUS then. */
int stdchk_map_fetch(const void* address, size_t length);

/* Removes a mapping. `address` is what stdchk_map_image returned. */
int stdchk_unmap_image(void* address);

/* Returns a sentence about this thread's last failure. Never NULL; valid until the thread's next
 * call. */
const char* stdchk_map_error(void);

#ifdef __cplusplus
}
#endif

#endif
