/* A program for VeloC's file mode: restarts from the newest version, then writes the next one.
 * Usage: veloc_file CONFIG
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <veloc.h>

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char** argv) {
  int rank, saved[2];
  char path[VELOC_MAX_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check(VELOC_Init(MPI_COMM_WORLD, argv[1]) == VELOC_SUCCESS, "VELOC_Init");
  const int version = VELOC_Restart_test("files", 0);
  if (version != VELOC_FAILURE) {
    check(VELOC_Restart_begin("files", version) == VELOC_SUCCESS, "VELOC_Restart_begin");
    check(VELOC_Route_file("state.dat", path) == VELOC_SUCCESS, "VELOC_Route_file");
    FILE* file = fopen(path, "rb");
    const int good = file != NULL && fread(saved, sizeof saved, 1, file) == 1;
    check(good && saved[0] == version && saved[1] == rank, "the content");
    fclose(file);
    check(VELOC_Restart_end(good) == VELOC_SUCCESS, "VELOC_Restart_end");
  }
  if (rank == 0) printf("restart version %d\n", version);
  const int next = version < 0 ? 1 : version + 1;
  check(VELOC_Checkpoint_begin("files", next) == VELOC_SUCCESS, "VELOC_Checkpoint_begin");
  check(VELOC_Route_file("state.dat", path) == VELOC_SUCCESS, "VELOC_Route_file");
  FILE* file = fopen(path, "wb");
  check(file != NULL, path);
  saved[0] = next;
  saved[1] = rank;
  int good = fwrite(saved, sizeof saved, 1, file) == 1;
  good = fclose(file) == 0 && good;
  check(VELOC_Checkpoint_end(good) == VELOC_SUCCESS, "VELOC_Checkpoint_end");
  check(VELOC_Finalize(0) == VELOC_SUCCESS, "VELOC_Finalize");
  MPI_Finalize();
  return 0;
}
