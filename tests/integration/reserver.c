/* Writes by reservation in error-prone cases, and reads the result back.
 *
 *   reserver NAME     in the pool of STDCHK_MANAGER and STDCHK_SECRET_FILE
 *
 * Prints "right" and exits with 0, or prints the failed expectation and exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdchk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                 \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      printf("line %d: %s: errno %d: %s\n", __LINE__, #condition, errno, stdchk_error()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static stdchk_file* open_file(stdchk_pool* pool, const char* name, int flags) {
  stdchk_file* file = stdchk_open(pool, name, flags, 0644);
  EXPECT(file != NULL);
  return file;
}

static char* reserve(stdchk_file* file, size_t count) {
  size_t got = count;
  char* buffer = stdchk_reserve(file, &got);
  EXPECT(buffer != NULL && got == count);
  return buffer;
}

static void expect_content(stdchk_pool* pool, const char* name, const char* content) {
  char bytes[64] = {0};
  stdchk_file* file = open_file(pool, name, O_RDONLY);
  EXPECT(stdchk_read(file, bytes, sizeof(bytes)) == (ssize_t)strlen(content));
  EXPECT(strcmp(bytes, content) == 0);
  EXPECT(stdchk_close(file) == 0);
}

static void append(stdchk_pool* pool, const char* name) {
  stdchk_file* file = open_file(pool, name, O_WRONLY | O_CREAT | O_TRUNC);
  EXPECT(stdchk_write(file, "one,", 4) == 4);
  EXPECT(stdchk_close(file) == 0);
  file = open_file(pool, name, O_WRONLY | O_APPEND);
  memcpy(reserve(file, 4), "two,", 4);
  EXPECT(stdchk_submit(file, 4) == 0);
  EXPECT(stdchk_write(file, "three,", 6) == 6);
  memcpy(reserve(file, 40), "four", 4);
  EXPECT(stdchk_submit(file, 4) == 0);
  EXPECT(stdchk_close(file) == 0);
  expect_content(pool, name, "one,two,three,four");
}

static void misuse(stdchk_pool* pool, const char* name) {
  stdchk_file* file = open_file(pool, name, O_RDWR | O_CREAT | O_TRUNC);
  char byte = 0;
  size_t more = 4;
  memcpy(reserve(file, 4), "good", 4);
  EXPECT(stdchk_submit(file, 5) == -1 && errno == EINVAL);
  EXPECT(stdchk_write(file, "bad", 3) == -1 && errno == EBUSY);
  EXPECT(stdchk_read(file, &byte, 1) == -1 && errno == EBUSY);
  EXPECT(stdchk_reserve(file, &more) == NULL && errno == EBUSY);
  EXPECT(stdchk_sync(file) == -1 && errno == EBUSY);
  EXPECT(stdchk_submit(file, 4) == 0);
  EXPECT(stdchk_sync(file) == 0);
  (void)reserve(file, 4);
  EXPECT(stdchk_submit(file, 0) == 0);
  EXPECT(stdchk_submit(file, 1) == -1 && errno == EINVAL);
  EXPECT(stdchk_sync(file) == 0);
  EXPECT(stdchk_close(file) == 0);
  expect_content(pool, name, "good");
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  stdchk_pool* pool = stdchk_connect(NULL);
  EXPECT(pool != NULL);
  append(pool, argv[1]);
  misuse(pool, argv[1]);
  stdchk_disconnect(pool);
  puts("right");
  return 0;
}
