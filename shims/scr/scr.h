/* SCR's interface, on a pool of stdchk. Names, values and signatures are those of SCR 3, so that
 * programs need no change. docs/guide/scr-veloc.md says which settings count. Functions return
 * SCR_SUCCESS or SCR_FAILURE; the reason of a failure goes to the standard error output.
 *
 * Threads: only the thread that calls MPI. All functions but SCR_Route_file and SCR_Get_version are
 * collective over MPI_COMM_WORLD.
 */
#ifndef STDCHK_SCR_H
#define STDCHK_SCR_H

#ifdef __cplusplus
extern "C" {
#endif

#define SCR_MAJOR_VERSION "3"
#define SCR_MINOR_VERSION "0"
#define SCR_PATCH_VERSION "1"
#define SCR_VERSION "v3.0.1"

#define SCR_SUCCESS (0)
#define SCR_FAILURE (1)

/* Bytes of a buffer for a name or a path, with the zero at its end. */
#define SCR_MAX_FILENAME 1024

#define SCR_FLAG_NONE 0
#define SCR_FLAG_CHECKPOINT 1 /* the program can restart from the dataset */
#define SCR_FLAG_OUTPUT 2     /* the dataset is a result: it stays */

/* Sets "KEY=VALUE" before SCR_Init, or returns the value of "KEY", which the caller frees. */
const char* SCR_Config(const char* config);
const char* SCR_Configf(const char* format, ...) __attribute__((format(printf, 1, 2)));

int SCR_Init(void);
int SCR_Finalize(void);
char* SCR_Get_version(void);
int SCR_Should_exit(int* flag);

/* Writes the path at which the program must open the file `name` into `file`. */
int SCR_Route_file(const char* name, char* file);

int SCR_Need_checkpoint(int* flag);
int SCR_Start_checkpoint(void);
int SCR_Complete_checkpoint(int valid);
int SCR_Start_output(const char* name, int flags);
int SCR_Complete_output(int valid);

/* `name` may be NULL. */
int SCR_Have_restart(int* flag, char* name);
int SCR_Start_restart(char* name);
int SCR_Complete_restart(int valid);

int SCR_Current(const char* name);
int SCR_Drop(const char* name);
int SCR_Delete(const char* name);

#ifdef __cplusplus
}
#endif

#endif
