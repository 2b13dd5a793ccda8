/* A program for SCR, after the order of calls in SCR's manual: restarts from the newest checkpoint,
 * takes STEPS more steps, checkpoints after each. Usage: scr_steps STEPS [die STEP | invalid STEP]:
 * rank 1 ends in the middle of the checkpoint of a step, or says that its file is not valid.
 */
#include <mpi.h>
#include <scr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { kCount = 50000 };
static double values[kCount];

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static int load(const char* dataset, int rank) {
  char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
  int step = 0;
  snprintf(name, sizeof name, "%s/rank_%d.bin", dataset, rank);
  if (SCR_Route_file(name, path) != SCR_SUCCESS) return 0;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return 0;
  const int good =
      fread(&step, sizeof step, 1, file) == 1 && fread(values, sizeof values, 1, file) == 1;
  fclose(file);
  for (int i = 0; good && i < kCount; ++i)
    check(values[i] == rank * 1e6 + step + i * 0.5, "the content");
  return good ? step : 0;
}

static int save(int step, int rank, int dies, int is_invalid) {
  char dataset[64], name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
  snprintf(dataset, sizeof dataset, "timestep.%d", step);
  check(SCR_Start_output(dataset, SCR_FLAG_CHECKPOINT) == SCR_SUCCESS, "SCR_Start_output");
  snprintf(name, sizeof name, "%s/rank_%d.bin", dataset, rank);
  check(SCR_Route_file(name, path) == SCR_SUCCESS, "SCR_Route_file");
  for (int i = 0; i < kCount; ++i) values[i] = rank * 1e6 + step + i * 0.5;
  FILE* file = fopen(path, "wb");
  check(file != NULL, path);
  int good =
      fwrite(&step, sizeof step, 1, file) == 1 && fwrite(values, sizeof values / 2, 1, file) == 1;
  fflush(file);
  if (dies) abort();
  good = good && fwrite(values + kCount / 2, sizeof values / 2, 1, file) == 1;
  good = fclose(file) == 0 && good;
  return SCR_Complete_output(good && !is_invalid);
}

int main(int argc, char** argv) {
  int rank, first = 0, flag = 0;
  char dataset[SCR_MAX_FILENAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int steps = atoi(argv[1]);
  const int dies_at = argc > 3 && strcmp(argv[2], "die") == 0 ? atoi(argv[3]) : -1;
  const int invalid_at = argc > 3 && strcmp(argv[2], "invalid") == 0 ? atoi(argv[3]) : -1;
  check(SCR_Config("SCR_FLUSH_WIDTH=7") != NULL, "SCR_Config");
  if (SCR_Init() != SCR_SUCCESS) {
    MPI_Finalize();
    return 4;
  }
  while (first == 0 && SCR_Have_restart(&flag, dataset) == SCR_SUCCESS && flag) {
    check(SCR_Start_restart(dataset) == SCR_SUCCESS, "SCR_Start_restart");
    const int step = load(dataset, rank);
    if (SCR_Complete_restart(step > 0) == SCR_SUCCESS) first = step;
  }
  if (rank == 0) printf("restart step %d dataset %s\n", first, first > 0 ? dataset : "none");
  fflush(stdout);
  for (int step = first + 1; step <= first + steps; ++step) {
    check(SCR_Need_checkpoint(&flag) == SCR_SUCCESS, "SCR_Need_checkpoint");
    if (!flag) continue;
    const int result =
        save(step, rank, rank == 1 && step == dies_at, rank == 1 && step == invalid_at);
    if (rank == 0) printf("step %d %s\n", step, result == SCR_SUCCESS ? "saved" : "dropped");
    fflush(stdout);
    check(SCR_Should_exit(&flag) == SCR_SUCCESS, "SCR_Should_exit");
    if (flag) break;
  }
  if (argc > 3 && strcmp(argv[2], "delete") == 0)
    check(SCR_Delete(argv[3]) == SCR_SUCCESS, "SCR_Delete");
  if (argc > 3 && strcmp(argv[2], "drop") == 0) check(SCR_Drop(argv[3]) == SCR_SUCCESS, "SCR_Drop");
  check(SCR_Finalize() == SCR_SUCCESS, "SCR_Finalize");
  MPI_Finalize();
  return 0;
}
