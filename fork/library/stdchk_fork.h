/* SnowFlock's calls for processes: a running worker is cloned, with all it has in memory.
 *
 *   sf_ticket ticket;
 *   if (sf_request_ticket(8, 0, &ticket) < 0) ...
 *   int id = sf_clone(&ticket);
 *   if (id > 0) {                  // a clone: has the parent's memory, and its own namespaces
 *     work(id, ticket.count);
 *     sf_exit(0);
 *   }
 *   sf_join(&ticket);              // the parent
 *
 * The calls are of Lagar-Cavilla et al., "SnowFlock: Rapid Virtual Machine Cloning for Cloud
 * Computing", EuroSys 2009, section 4.1. They need the daemon stdchk-forkd on this host. All calls
 * block. A clone has the calling thread only, as after fork(2). docs/guide/fork.md says what else a
 * clone has, and what it has not.
 *
 * Threads: one thread of a process at a time.
 * Errors: calls return a negative errno. sf_error() has a sentence for people.
 */
#ifndef STDCHK_FORK_H
#define STDCHK_FORK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A reservation of clones. Only the process that asked for it can use it. */
typedef struct sf_ticket {
  uint64_t number;
  uint32_t count; /* clones that are granted: at most as many as were asked for */
} sf_ticket;

#define SF_VALUE_BYTES_MAX 4096

/* How a clone ended. */
typedef enum sf_end {
  SF_EXITED = 0, /* by sf_exit or sf_exit_with */
  SF_DIED = 1,   /* in another way: a signal, or exit(3) */
  SF_KILLED = 2, /* by sf_kill */
  SF_FAILED = 3  /* it never ran; `value` says why */
} sf_end;

typedef struct sf_result {
  uint32_t id; /* 1 to count */
  sf_end end;
  int32_t status;       /* of sf_exit */
  uint32_t value_bytes; /* of sf_exit_with */
  char value[SF_VALUE_BYTES_MAX];
} sf_result;

/* Options of a ticket. With SF_HIERARCHICAL the clones of one host share one set of namespaces, and
 * one address. With SF_OUTLIVE they go on when the parent ends. */
#define SF_HIERARCHICAL 1
#define SF_OUTLIVE 2

/* Reserves up to `n` clones. `options`: 0, or the sum of options above. Fewer are granted when
 * there is no room for `n`; -EAGAIN: there is room for none.
 *
 * Clones with SF_OUTLIVE on other hosts go on when the parent's host is lost, too, as soon as the
 * parent's memory is in a pool (stdchk-forkd --images). In virtual machines there are no options.
 */
int sf_request_ticket(uint32_t n, int options, sf_ticket* ticket);

/* Merges the memory of this process into huge pages, where the kernel can (Linux 6.1). A later
 * sf_clone copies page tables, which then are 1/512 of their size: 1 ms instead of 20 for 1 GiB,
 * for each clone. Takes about 0.5 s for 1 GiB. Returns 0; -EINVAL: the kernel has no MADV_COLLAPSE;
 * -ENOMEM: there are not enough free huge pages.
 */
int sf_prepare(void);

/* Makes the clones. Returns 0 in the parent, and the clone's id, from 1, in each clone. The parent
 * goes on as soon as its memory is frozen; the clones start meanwhile. A ticket serves one
 * sf_clone. */
int sf_clone(const sf_ticket* ticket);

/* Ends this clone, and all processes in its namespaces. In a process that is no clone: as
 * _exit(status). */
void sf_exit(int status) __attribute__((noreturn));
/* The parent's sf_join_results returns `value`, which has at most SF_VALUE_BYTES_MAX bytes. */
void sf_exit_with(int status, const void* value, size_t bytes) __attribute__((noreturn));

/* Waits until all clones have ended, then gives the ticket back. Returns the number of clones that
 * did not end by sf_exit(0). */
int sf_join(const sf_ticket* ticket);
/* As sf_join, and fills `results`, which has room for ticket->count, in the order of the ids. */
int sf_join_results(const sf_ticket* ticket, sf_result* results);

/* Ends the clones at once. The ticket still has to be joined, unless it was never used. */
int sf_kill(const sf_ticket* ticket);
/* Ends one clone. */
int sf_kill_one(const sf_ticket* ticket, uint32_t id);

/* The id of this clone; 0 in a process that is no clone. A clone that clones itself keeps its id.
 */
int sf_id(void);

/* In a virtual machine: asks the host who this machine is, and gives the interface of the family's
 * network the addresses that the host has chosen. sf_clone does so by itself. The first machine
 * needs this call after it has booted, and a clone that `stdchk vm fork` or `stdchk vm start` has
 * made. Returns what sf_id() returns from then on. Elsewhere: as sf_id(). */
int sf_identify(void);

/* What the last failed call of this thread failed on. */
const char* sf_error(void);

#ifdef __cplusplus
}
#endif
#endif
