/* A client process that tests stop and wake, and whose files they check.
 *
 *   pool-writer TRANSPORT write PATH SEED MIB PAUSE
 *
 * writes MIB MiB. After PAUSE MiB are stored, it prints "paused" and waits for a line of input.
 * At the end it prints "closed".
 *
 *   pool-writer TRANSPORT check PATH SEED MIB
 *
 * prints "equal", or where the file differs.
 *
 * STDCHK_MANAGER and STDCHK_SECRET_FILE name the pool. After a failed call the program prints
 * "failed: CALL: ERRNO: SENTENCE" and exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdchk.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP (1 << 20)

static uint64_t words[STEP / sizeof(uint64_t)];
static unsigned char got[STEP];

static int failed(const char* call) {
  const int code = errno;
  printf("failed: %s: %s: %s\n", call, strerrorname_np(code), stdchk_error());
  return 1;
}

/* Each MiB of each seed is different and incompressible. */
static void fill(uint64_t seed, uint64_t mib) {
  uint64_t state = (seed << 32) + mib;
  for (size_t i = 0; i < STEP / sizeof(uint64_t); ++i) {
    state += 0x9E3779B97F4A7C15U; /* splitmix64 */
    uint64_t word = state;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
    words[i] = word ^ (word >> 31);
  }
}

static int write_file(stdchk_pool* pool, const char* path, uint64_t seed, uint64_t count,
                      uint64_t pause) {
  stdchk_file* file = stdchk_open(pool, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file == NULL) return failed("open");
  for (uint64_t mib = 0; mib < count; ++mib) {
    if (mib == pause) {
      if (stdchk_sync(file) != 0) return failed("sync");
      puts("paused");
      if (getchar() == EOF) return 2;
    }
    fill(seed, mib);
    if (stdchk_write(file, words, STEP) != STEP) return failed("write");
  }
  if (stdchk_close(file) != 0) return failed("close");
  puts("closed");
  return 0;
}

static int check_file(stdchk_pool* pool, const char* path, uint64_t seed, uint64_t count) {
  stdchk_file* file = stdchk_open(pool, path, O_RDONLY, 0);
  if (file == NULL) return failed("open");
  for (uint64_t mib = 0; mib < count; ++mib) {
    const ssize_t length = stdchk_read(file, got, STEP);
    if (length < 0) return failed("read");
    fill(seed, mib);
    if (length == STEP && memcmp(got, words, STEP) == 0) continue;
    printf("differs in MiB %llu\n", (unsigned long long)mib);
    return 1;
  }
  const ssize_t more = stdchk_read(file, got, 1);
  if (more != 0) return puts("is longer"), 1;
  if (stdchk_close(file) != 0) return failed("close");
  puts("equal");
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const uint64_t seed = strtoull(argv[4], NULL, 10);
  const uint64_t count = strtoull(argv[5], NULL, 10);
  struct stdchk_options options;
  stdchk_options_init(&options);
  options.transport = argv[1];
  stdchk_pool* pool = stdchk_connect(&options);
  if (pool == NULL) return failed("connect");
  const int status = strcmp(argv[2], "write") == 0
                         ? write_file(pool, argv[3], seed, count,
                                      argc > 6 ? strtoull(argv[6], NULL, 10) : UINT64_MAX)
                         : check_file(pool, argv[3], seed, count);
  fflush(stdout);
  if (status != 0) exit(status); /* like a program that gives up; the file is still open */
  stdchk_disconnect(pool);
  return 0;
}
