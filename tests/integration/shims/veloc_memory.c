/* A program for VeloC's memory mode: restarts from the newest version, takes two more steps,
 * checkpoints after each. Usage: veloc_memory CONFIG [die STEP]: rank 1 ends in the middle of the
 * checkpoint of a step.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <veloc.h>

enum { kCount = 60000 };
static double values[kCount];

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char** argv) {
  int rank, step = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int dies_at = argc > 3 ? atoi(argv[3]) : -1;
  if (VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) {
    MPI_Finalize();
    return 4;
  }
  check(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS, "VELOC_Mem_protect");
  check(VELOC_Mem_protect(1, values, kCount, sizeof *values) == VELOC_SUCCESS, "VELOC_Mem_protect");
  const int version = VELOC_Restart_test("memory", 0);
  if (version != VELOC_FAILURE) {
    check(VELOC_Restart_begin("memory", version) == VELOC_SUCCESS, "VELOC_Restart_begin");
    check(VELOC_Recover_size(1) == (int)sizeof values && VELOC_Recover_size(9) == -1,
          "VELOC_Recover_size");
    int first[] = {0};
    check(VELOC_Recover_selective(VELOC_RECOVER_SOME, first, 1) == VELOC_SUCCESS && values[0] == 0,
          "some regions");
    check(VELOC_Recover_mem() == VELOC_SUCCESS, "VELOC_Recover_mem");
    check(VELOC_Restart_end(1) == VELOC_SUCCESS && step == version, "VELOC_Restart_end");
    for (int i = 0; i < kCount; ++i)
      check(values[i] == rank * 1e6 + step + i * 0.25, "the content");
    check(VELOC_Restart_test("memory", version) < version, "a limit of versions");
  }
  if (rank == 0) printf("restart version %d\n", version);
  fflush(stdout);
  for (const int last = step + 2; step < last;) {
    ++step;
    for (int i = 0; i < kCount; ++i) values[i] = rank * 1e6 + step + i * 0.25;
    if (step == dies_at) {
      check(VELOC_Checkpoint_begin("memory", step) == VELOC_SUCCESS, "VELOC_Checkpoint_begin");
      check(VELOC_Checkpoint_mem() == VELOC_SUCCESS, "VELOC_Checkpoint_mem");
      if (rank == 1) abort();
      VELOC_Checkpoint_end(1);
    }
    check(VELOC_Checkpoint_wait() == VELOC_SUCCESS, "VELOC_Checkpoint_wait");
    check(VELOC_Checkpoint("memory", step) == VELOC_SUCCESS, "VELOC_Checkpoint");
  }
  check(VELOC_Finalize(1) == VELOC_SUCCESS, "VELOC_Finalize");
  MPI_Finalize();
  return 0;
}
