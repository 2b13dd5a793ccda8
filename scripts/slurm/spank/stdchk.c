/* SPANK plug-in of Slurm: adds --stdchk=nodes=4,mem=25G,... to sbatch, salloc and srun. The prolog
 * finds the options as SPANK_STDCHK; scripts/slurm/prolog says what becomes of them. In
 * plugstack.conf, which has to be on all hosts: optional /usr/lib/slurm/stdchk_spank.so It has to
 * be built anew for each version of Slurm. */
#include <slurm/spank.h>
#include <stdint.h>
#include <string.h>

SPANK_PLUGIN(stdchk, 1)

enum { kOptionsLength = 1024 };

/* What the prolog takes apart; it is a shell script that runs as root until it has become the user.
 */
static int is_plain(const char* text) {
  const size_t length = strlen(text);
  return length > 0 && length < kOptionsLength &&
         strspn(text,
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                "=,:._/@%+-()") == length;
}

static const char* wanted; /* as given on the command line */

static int take(int value, const char* text, int remote) {
  (void)value;
  if (!remote && (text == NULL || !is_plain(text))) {
    slurm_error("--stdchk=%s is not valid: words KEY=VALUE with commas between them",
                text == NULL ? "" : text);
    return ESPANK_BAD_ARG;
  }
  wanted = text;
  return ESPANK_SUCCESS;
}

static struct spank_option option = {
    (char*)"stdchk",
    (char*)"KEY=VALUE,...",
    (char*)"a pool for checkpoints on the job's nodes: nodes=N, mem=SIZE, drain=DIR, images=N",
    1,
    0,
    take};

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  return spank_option_register(spank, &option);
}

/* sbatch and salloc make the job; srun only where it is in none yet. */
int slurm_spank_init_post_opt(spank_t spank, int count, char** arguments) {
  (void)count;
  (void)arguments;
  if (wanted == NULL || spank_remote(spank) != 0) return ESPANK_SUCCESS;
  return spank_job_control_setenv(spank, "STDCHK", wanted, 1);
}
