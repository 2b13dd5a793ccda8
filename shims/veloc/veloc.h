/* VeloC's client interface, on a pool of stdchk. Names, values and signatures are VeloC's, so that
 * programs need no change. docs/guide/scr-veloc.md says which settings count. Functions return
 * VELOC_SUCCESS or VELOC_FAILURE where nothing else is said; the reason of a failure goes to the
 * standard error output.
 *
 * Threads: only the thread that calls MPI. Init, Finalize, Checkpoint, Checkpoint_begin,
 * Checkpoint_end, Restart, Restart_test, Restart_begin, Restart_end and Cleanup are collective over
 * the communicator.
 */
#ifndef STDCHK_VELOC_H
#define STDCHK_VELOC_H

#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VELOC_VERSION_MAJOR 1
#define VELOC_VERSION_MINOR 7
#define VELOC_VERSION_PATCH 0
#define VELOC_VERSION "v1.7.0"

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1)

/* Bytes of a buffer for a path, with the zero at its end. */
#define VELOC_MAX_NAME (1024)

#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1) /* only the regions in `ids` */
#define VELOC_RECOVER_REST (2) /* all regions but those in `ids` */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

int VELOC_Init(MPI_Comm comm, const char* cfg_file);
/* This process checkpoints alone, under a number of its own. */
int VELOC_Init_single(unsigned int id, const char* cfg_file);
/* Checkpoints stay, whatever `cleanup` says. */
int VELOC_Finalize(int cleanup);

/* A `count` of 0 ends the protection. */
int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);

/* Writes the path at which the program must open the file `original` into `routed`, which may be
 * the same buffer. */
int VELOC_Route_file(const char* original, char* routed);

int VELOC_Checkpoint_begin(const char* name, int version);
int VELOC_Checkpoint_selective(int mode, int* ids, int id_count);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_end(int success);
/* The result of the last checkpoint: it is complete when VELOC_Checkpoint_end returns, in each
 * mode. */
int VELOC_Checkpoint_wait(void);
/* Return 1. */
int VELOC_Checkpoint_finished(void);
int VELOC_Backend_ready(void);
/* Begins a checkpoint, writes all regions, and ends it. */
int VELOC_Checkpoint(const char* name, int version);

/* Returns the highest complete version below `version`, of all if it is 0, or VELOC_FAILURE. */
int VELOC_Restart_test(const char* name, int version);
int VELOC_Restart_begin(const char* name, int version);
int VELOC_Recover_selective(int mode, int* ids, int id_count);
int VELOC_Recover_mem(void);
/* Returns the bytes of a region in the checkpoint, or -1. */
int VELOC_Recover_size(int id);
int VELOC_Restart_end(int success);
/* Begins a restart, reads all regions, and ends it. */
int VELOC_Restart(const char* name, int version);

/* Removes all versions of a checkpoint. */
int VELOC_Cleanup(const char* name);

#ifdef __cplusplus
}
#endif

#endif
