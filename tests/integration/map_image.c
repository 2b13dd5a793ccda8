/* map_image IMAGE [OPTION...]: maps an image by stdchk-pager. Reads commands from standard input.
 * It answers each with a line. Used by fork_pager_test.py.
 *
 *   sum               FNV-1a of all bytes of the mapping
 *   read OFFSET       the byte there
 *   write OFFSET N    stores N there
 *   fetch OFFSET N    stdchk_map_fetch
 *   into OFFSET N     read(2) of N bytes of /dev/zero into the mapping: a fault of the kernel
 *   move              mremap(2) of the mapping to another address
 *   chase N           moves the mapping N times, onto memory that another thread reads meanwhile
 *   fork OFFSET       the byte there as a child of fork(2) reads it
 *   rss               KiB of the process's memory that it shares with nobody, and Pss
 *   touch N ORDER     median, 0.99 quantile and mean microseconds of N touches:
 *                     seq, random, or jump (one page of each 64 KiB at random)
 *   end
 * Options: file PATH (the image is that file), follow, readonly, offset N, length N.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fork/pager/stdchk_map.h"

static sigjmp_buf back;
static void on_bus(int number) {
  (void)number;
  siglongjmp(back, 1);
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* A permutation of the pages: a step that has no factor in common with their number. */
static size_t page_of(size_t i, size_t pages, char order) {
  const size_t step = 7919 * 613;
  if (order == 'j') return (i * step + 12345) % (pages / 16) * 16;
  return order == 'r' ? (i * step + 12345) % pages : i % pages;
}

static void touch(volatile unsigned char* at, size_t length, size_t count, char order) {
  double* took = malloc(count * sizeof(double));
  const size_t pages = length / 4096;
  const double began = microseconds();
  unsigned sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double from = microseconds();
    sum += at[4096 * page_of(i, pages, order)];
    took[i] = microseconds() - from;
  }
  const double all = microseconds() - began;
  qsort(took, count, sizeof(double), by_value);
  printf("%.2f %.2f %.2f %u\n", took[count / 2], took[count * 99 / 100], all / (double)count, sum);
  free(took);
}

static void memory(void) {
  char line[256];
  long own = 0, pss = 0, value;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "Pss: %ld", &value) == 1) pss = value;
    if (sscanf(line, "Private_Dirty: %ld", &value) == 1) own += value;
  }
  if (file) fclose(file);
  printf("%ld %ld\n", own, pss);
}

static unsigned char* moved(unsigned char* at, size_t length) {
  void* to = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* now = mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  printf("%s\n", now == MAP_FAILED ? strerror(errno) : "moved");
  return now == MAP_FAILED ? at : now;
}

/* What the other thread reads, and whether it has read something that is not zero. */
struct chase {
  const volatile unsigned long long* _Atomic at;
  _Atomic unsigned long long read;
};

static void* chaser(void* argument) {
  struct chase* chase = argument;
  for (;;) {
    const volatile unsigned long long* at = chase->at;
    if (at == NULL) return NULL;
    const unsigned long long word = *at;
    if (word != 0) chase->read = word;
    while (word != 0 && chase->at == at) usleep(10);
  }
}

static void end_by_bus(int number) {
  (void)number;
  static const char text[] = "SIGBUS\n";
  (void)!write(1, text, sizeof text - 1);
  _exit(3);
}

/* Two threads read pages of the place to which the mapping is moved: zeros before, the image's
 * after. */
static unsigned char* chased(unsigned char* at, size_t length, size_t rounds) {
  struct chase chases[2] = {{0}, {0}};
  pthread_t threads[2];
  unsigned wrong = 0;
  static const unsigned long long zero;
  signal(SIGBUS, end_by_bus);
  for (int t = 0; t < 2; ++t) {
    chases[t].at = &zero;
    pthread_create(&threads[t], NULL, chaser, &chases[t]);
  }
  for (size_t i = 0; i < rounds; ++i) {
    unsigned char* to = mmap(NULL, length, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t page[2];
    for (int t = 0; t < 2; ++t) {
      page[t] = (2 * i + (size_t)t) * 5 * 4096 % length;
      chases[t].read = 0;
      chases[t].at = (unsigned long long*)(to + page[t]);
    }
    usleep(100);
    at = mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    for (int t = 0; t < 2; ++t) {
      while (chases[t].read == 0) usleep(10);
      wrong += chases[t].read != *(unsigned long long*)(at + page[t]);
    }
  }
  for (int t = 0; t < 2; ++t) {
    chases[t].at = NULL;
    pthread_join(threads[t], NULL);
  }
  signal(SIGBUS, on_bus);
  printf("%u wrong\n", wrong);
  return at;
}

static void child_reads(const unsigned char* at, size_t offset) {
  const pid_t child = fork();
  int status = 0;
  if (child == 0) {
    signal(SIGBUS, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    _exit(at[offset]);
  }
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
  if (WIFEXITED(status)) printf("%d\n", WEXITSTATUS(status));
}

static void into(unsigned char* at, size_t count) {
  const int zero = open("/dev/zero", O_RDONLY);
  const ssize_t got = read(zero, at, count);
  printf("%s\n", got == (ssize_t)count ? "read" : strerror(errno));
  close(zero);
}

int main(int argc, char** argv) {
  struct stdchk_map_options options;
  stdchk_map_options_init(&options);
  for (int i = 2; i < argc; ++i) {
    if (!strcmp(argv[i], "follow")) options.flags |= STDCHK_MAP_FOLLOW_FORK;
    if (!strcmp(argv[i], "file") && i + 1 < argc) {
      options.flags |= STDCHK_MAP_FROM_FILE;
      options.source = open(argv[i + 1], O_RDONLY);
    }
    if (!strcmp(argv[i], "offset") && i + 1 < argc) options.offset = strtoull(argv[i + 1], NULL, 0);
    if (!strcmp(argv[i], "readonly")) options.protection = PROT_READ;
    if (!strcmp(argv[i], "length") && i + 1 < argc) options.length = strtoull(argv[i + 1], NULL, 0);
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  size_t length = 0;
  unsigned char* at = argc < 2 ? NULL : stdchk_map_image(argv[1], &options, &length);
  if (at == NULL) {
    printf("failed: %s\n", stdchk_map_error());
    return 1;
  }
  printf("mapped %zu\n", length);
  signal(SIGBUS, on_bus);
  unsigned char* first = at;
  char line[256], word[32], order[32];
  while (fgets(line, sizeof line, stdin)) {
    size_t a = 0, b = 0;
    sscanf(line, "%31s %zu %zu", word, &a, &b);
    if (sigsetjmp(back, 1)) {
      printf("SIGBUS\n");
      continue;
    }
    if (!strcmp(word, "sum")) {
      unsigned long long sum = 1469598103934665603ull;
      for (size_t i = 0; i < length; ++i) sum = (sum ^ at[i]) * 1099511628211ull;
      printf("%llu\n", sum);
    } else if (!strcmp(word, "read")) {
      printf("%d\n", at[a]);
    } else if (!strcmp(word, "write")) {
      at[a] = (unsigned char)b;
      printf("written\n");
    } else if (!strcmp(word, "fetch")) {
      printf("%s\n", stdchk_map_fetch(at + a, b) == 0 ? "fetched" : stdchk_map_error());
    } else if (!strcmp(word, "into")) {
      into(at + a, b);
    } else if (!strcmp(word, "move")) {
      at = moved(at, length);
    } else if (!strcmp(word, "chase")) {
      at = chased(at, length, a);
    } else if (!strcmp(word, "fork")) {
      child_reads(at, a);
    } else if (!strcmp(word, "rss")) {
      memory();
    } else if (sscanf(line, "touch %zu %31s", &a, order) == 2) {
      touch(at, length, a, order[0]);
    } else if (!strcmp(word, "end")) {
      break;
    }
  }
  if (at == first) return stdchk_unmap_image(at) == 0 ? 0 : 1;
  return 0;
}
