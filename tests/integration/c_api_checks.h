/* Helpers of the C programs that call stdchk.h. */
#ifndef STDCHK_TESTS_INTEGRATION_C_API_CHECKS_H
#define STDCHK_TESTS_INTEGRATION_C_API_CHECKS_H

#include <errno.h>
#include <fcntl.h>
#include <stdchk.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define MUST(what) ((what) ? (void)0 : broken(#what, __LINE__))

static inline void broken(const char* what, int line) {
  printf("line %d: %s does not hold; errno %s; %s\n", line, what, strerror(errno), stdchk_error());
  exit(1);
}

static inline stdchk_pool* connect_pool(void) {
  stdchk_pool* pool = stdchk_connect(NULL);
  MUST(pool != NULL);
  return pool;
}

static inline stdchk_file* open_file(stdchk_pool* pool, const char* path, int flags) {
  stdchk_file* file = stdchk_open(pool, path, flags, 0644);
  MUST(file != NULL);
  return file;
}

/* Bytes that differ for each seed. */
static inline unsigned char* random_bytes(uint64_t seed, size_t count) {
  unsigned char* bytes = (unsigned char*)malloc(count);
  MUST(bytes != NULL);
  uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    bytes[i] = (unsigned char)(state >> 56);
  }
  return bytes;
}

static inline void write_image(stdchk_pool* pool, const char* path, const unsigned char* bytes,
                               size_t count) {
  stdchk_file* file = open_file(pool, path, O_WRONLY | O_CREAT | O_TRUNC);
  MUST(stdchk_write(file, bytes, count) == (ssize_t)count);
  MUST(stdchk_close(file) == 0);
}

/* Checks that the file has exactly these bytes. */
static inline void check_file(stdchk_pool* pool, const char* path, const unsigned char* bytes,
                              size_t count) {
  unsigned char* got = (unsigned char*)malloc(count + 1);
  stdchk_file* file = open_file(pool, path, O_RDONLY);
  size_t done = 0;
  for (ssize_t length = 1; length > 0 && done <= count; done += (size_t)length) {
    length = stdchk_read(file, got + done, count + 1 - done);
    MUST(length >= 0);
  }
  MUST(done == count);
  MUST(memcmp(got, bytes, count) == 0);
  MUST(stdchk_close(file) == 0);
  free(got);
}

struct check_case {
  const char* name;
  void (*run)(stdchk_pool*);
};

/* Runs the case that the command line names. Returns the exit status. */
static inline int run_case(const struct check_case* cases, size_t count, int argc, char** argv) {
  for (size_t i = 0; argc == 2 && i < count; ++i) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    stdchk_pool* pool = connect_pool();
    cases[i].run(pool);
    stdchk_disconnect(pool);
    puts("good");
    return 0;
  }
  return 2;
}

#endif
