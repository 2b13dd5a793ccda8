// ring ROUNDS MIB [ASK]: each rank holds MIB MiB. In each round it sends 1 MiB around the ring,
// changes memory, and sums over all ranks, so that the result depends on every message. It appends
// a line for each round to /ring.RANK. It holds a deleted file, a pipe and a shared mapping, and
// checks them in each round. In round ASK rank 0 asks for a checkpoint.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int deleted, ends[2];
static volatile uint64_t* shared;

static void hold_things(void) {
  char name[] = "/tmp/ring.XXXXXX";
  deleted = mkstemp(name);
  unlink(name);
  if (deleted < 0 || write(deleted, "kept", 4) != 4 || pipe(ends) != 0 ||
      write(ends[1], "a", 1) != 1)
    abort();
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) abort();
}

static void check_things(uint64_t round) {
  char text[4], byte;
  if (pread(deleted, text, 4, 0) != 4 || memcmp(text, "kept", 4) != 0) abort();
  if (read(ends[0], &byte, 1) != 1 || write(ends[1], &byte, 1) != 1 || *shared != round) abort();
  *shared = round + 1;
}

static void ask(void) {
  FILE* said = popen("/.stdchk/checkpoint", "r");
  char line[64] = "";
  if (said == NULL || fgets(line, sizeof line, said) == NULL) abort();
  pclose(said);
  printf("ASKED %s", line);
  fflush(stdout);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, n;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  const int rounds = atoi(argv[1]), asks = argc > 3 ? atoi(argv[3]) : -1, m = (1 << 20) / 8;
  const size_t words = ((size_t)atoi(argv[2]) << 20) / 8;
  uint64_t *held = malloc(words * 8), *out = malloc(m * 8), *in = malloc(m * 8), all = 0;
  for (size_t i = 0; i < words; i++) held[i] = i * 0x9e3779b97f4a7c15ull + rank;
  char name[32];
  snprintf(name, sizeof name, "/ring.%d", rank);
  FILE* log = fopen(name, "w");
  hold_things();
  for (int r = 0; r < rounds; r++) {
    check_things(r);
    for (int i = 0; i < m; i++) out[i] = held[((size_t)i * 31 + r) % words] + all;
    MPI_Sendrecv(out, m, MPI_UINT64_T, (rank + 1) % n, r, in, m, MPI_UINT64_T, (rank + n - 1) % n,
                 r, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    uint64_t sum = 0;
    for (int i = 0; i < m; i++) {
      held[((size_t)i * 17 + r) % words] ^= in[i];
      sum = sum * 31 + in[i];
    }
    MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    fprintf(log, "%d %lx\n", r, all);
    fflush(log);
    if (rank == 0 && r == asks) ask();
    if (rank == 0 && r % 20 == 0) {
      printf("round %d\n", r);
      fflush(stdout);
    }
    usleep(5000);
  }
  fclose(log);
  int lines = 0;
  log = fopen(name, "r");
  for (int c; (c = fgetc(log)) != EOF;) lines += c == '\n';
  int least;
  MPI_Allreduce(&lines, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) printf("RESULT %lx, %d lines in each log\n", all, least);
  MPI_Finalize();
  return 0;
}
