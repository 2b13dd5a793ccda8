/* Calls the functions of stdchk.h for open files, as a program compiled against the installed
 * library.
 *
 *   c-api-calls CASE
 *
 * STDCHK_MANAGER and STDCHK_SECRET_FILE name the pool. Prints "good", or the first failed
 * expectation, and then exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdchk.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/c_api_checks.h"

static int is_absent(stdchk_pool* pool, const char* path) {
  errno = 0;
  return stdchk_open(pool, path, O_RDONLY, 0) == NULL && errno == ENOENT;
}

/* pwrite and pread work in any order and at any offset, and leave the file's position alone. */
static void at_any_offset(stdchk_pool* pool) {
  const size_t size = 5 * MIB + 123;
  unsigned char* model = calloc(size, 1);
  unsigned char* bytes = random_bytes(1, 2 * MIB);
  unsigned char got[1000];
  const size_t pieces[][2] = {{4 * MIB + 77, MIB + 46}, {3 * MIB - 5, 10}, {0, 999}, {500, MIB}};
  stdchk_file* file = open_file(pool, "offsets.N0.T1", O_RDWR | O_CREAT);
  for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); ++i) {
    const size_t offset = pieces[i][0];
    const size_t count = pieces[i][1];
    memcpy(model + offset, bytes + 17 * i, count);
    MUST(stdchk_pwrite(file, bytes + 17 * i, count, offset) == (ssize_t)count);
    MUST(stdchk_pread(file, got, 10, offset) == 10);
    MUST(memcmp(got, model + offset, 10) == 0);
  }
  memcpy(model, "begin", 5);
  MUST(stdchk_write(file, "begin", 5) == 5);
  MUST(stdchk_read(file, got, 100) == 100);
  MUST(memcmp(got, model + 5, 100) == 0);
  MUST(stdchk_close(file) == 0);
  check_file(pool, "offsets.N0.T1", model, size);
  file = open_file(pool, "/offsets.N0.T1", O_RDONLY);
  MUST(stdchk_pread(file, got, sizeof(got), size - 3) == 3);
  MUST(memcmp(got, model + size - 3, 3) == 0);
  MUST(stdchk_pread(file, got, sizeof(got), size + 3) == 0);
  MUST(stdchk_close(file) == 0);
  free(model);
  free(bytes);
}

static void truncated(stdchk_pool* pool) {
  const size_t cut = MIB + 17;
  const size_t longer = 2 * MIB + 5;
  unsigned char* bytes = random_bytes(2, 3 * MIB);
  write_image(pool, "cut.N0.T1", bytes, 3 * MIB);
  stdchk_file* file = open_file(pool, "cut.N0.T1", O_RDWR);
  MUST(stdchk_truncate(file, cut) == 0);
  MUST(stdchk_truncate(file, longer) == 0);
  MUST(stdchk_close(file) == 0);
  memset(bytes + cut, 0, longer - cut);
  check_file(pool, "cut.N0.T1", bytes, longer);
  file = open_file(pool, "cut.N0.T1", O_WRONLY | O_TRUNC);
  MUST(stdchk_close(file) == 0);
  check_file(pool, "cut.N0.T1", bytes, 0);
  file = open_file(pool, "cut.N0.T1", O_RDONLY);
  MUST(stdchk_truncate(file, 1) == -1);
  MUST(stdchk_close(file) == 0);
  free(bytes);
}

static void aborted(stdchk_pool* pool) {
  unsigned char* kept = random_bytes(3, 2 * MIB);
  unsigned char* dropped = random_bytes(4, 3 * MIB);
  write_image(pool, "old.N0.T1", kept, 2 * MIB);
  stdchk_file* file = open_file(pool, "old.N0.T1", O_WRONLY | O_TRUNC);
  MUST(stdchk_write(file, dropped, 3 * MIB) == (ssize_t)(3 * MIB));
  stdchk_abort(file);
  check_file(pool, "old.N0.T1", kept, 2 * MIB);
  file = open_file(pool, "new.N0.T1", O_WRONLY | O_CREAT | O_EXCL);
  MUST(stdchk_write(file, dropped, 3 * MIB) == (ssize_t)(3 * MIB));
  MUST(stdchk_sync(file) == 0);
  stdchk_abort(file);
  MUST(is_absent(pool, "new.N0.T1"));
  write_image(pool, "new.N0.T1", kept, 2 * MIB); /* the name is free again */
  check_file(pool, "new.N0.T1", kept, 2 * MIB);
  free(kept);
  free(dropped);
}

/* Fills the library's buffers wholly, in part, and between calls of write. */
static void without_a_copy(stdchk_pool* pool) {
  const size_t size = 4 * MIB + 321;
  unsigned char* bytes = random_bytes(5, size);
  stdchk_file* file = open_file(pool, "reserved.N0.T1", O_WRONLY | O_CREAT);
  MUST(stdchk_submit(file, 1) == -1 && errno == EINVAL);
  size_t done = 0;
  for (unsigned turn = 0; done < size; ++turn) {
    size_t count = size - done;
    if (turn % 3 == 2) {
      count = count < 100000 ? count : 100000;
      MUST(stdchk_write(file, bytes + done, count) == (ssize_t)count);
    } else {
      unsigned char* buffer = stdchk_reserve(file, &count);
      MUST(buffer != NULL && count > 0 && count <= size - done);
      size_t more = 1;
      MUST(stdchk_reserve(file, &more) == NULL && errno == EBUSY);
      if (turn % 3 == 1) count = (count + 1) / 2;
      memcpy(buffer, bytes + done, count);
      MUST(stdchk_submit(file, count) == 0);
    }
    done += count;
  }
  MUST(stdchk_close(file) == 0);
  check_file(pool, "reserved.N0.T1", bytes, size);
  free(bytes);
}

/* An image becomes visible at close; any other file already at sync. */
static void visible_when_promised(stdchk_pool* pool) {
  unsigned char* bytes = random_bytes(6, MIB);
  stdchk_pool* other = connect_pool();
  stdchk_file* image = open_file(pool, "synced.N0.T1", O_WRONLY | O_CREAT);
  stdchk_file* plain = open_file(pool, "synced", O_WRONLY | O_CREAT);
  MUST(stdchk_write(image, bytes, MIB) == (ssize_t)MIB);
  MUST(stdchk_write(plain, bytes, MIB) == (ssize_t)MIB);
  MUST(stdchk_sync(image) == 0);
  MUST(stdchk_sync(plain) == 0);
  MUST(is_absent(other, "synced.N0.T1"));
  check_file(other, "synced", bytes, MIB);
  MUST(stdchk_close(image) == 0);
  MUST(stdchk_close(plain) == 0);
  check_file(other, "synced.N0.T1", bytes, MIB);
  stdchk_disconnect(other);
  free(bytes);
}

static void* error_of_a_new_thread(void* unused) {
  (void)unused;
  MUST(stdchk_error() != NULL);
  return stdchk_error()[0] == '\0' ? NULL : "says what another thread did";
}

static void failures_have_a_sentence(stdchk_pool* pool) {
  MUST(stdchk_error() != NULL);
  MUST(stdchk_open(pool, "none/of.N0.T1", O_RDONLY, 0) == NULL && errno == ENOENT);
  MUST(is_absent(pool, "none"));
  MUST(strlen(stdchk_error()) > 10);
  pthread_t thread;
  void* wrong = NULL;
  MUST(pthread_create(&thread, NULL, error_of_a_new_thread, NULL) == 0);
  MUST(pthread_join(thread, &wrong) == 0 && wrong == NULL);
  write_image(pool, "there.N0.T1", (const unsigned char*)"x", 1);
  MUST(stdchk_open(pool, "there.N0.T1", O_WRONLY | O_CREAT | O_EXCL, 0644) == NULL);
  MUST(errno == EEXIST);
  stdchk_file* file = open_file(pool, "there.N0.T1", O_RDONLY);
  size_t count = 1;
  MUST(stdchk_write(file, "y", 1) == -1);
  MUST(stdchk_reserve(file, &count) == NULL);
  MUST(strstr(stdchk_error(), "writing") != NULL);
  MUST(stdchk_close(file) == 0);
  check_file(pool, "there.N0.T1", (const unsigned char*)"x", 1);
  struct stdchk_options options;
  stdchk_options_init(&options);
  options.secret_file = "/nonexistent/secret";
  MUST(stdchk_connect(&options) == NULL && errno == EACCES);
  MUST(strstr(stdchk_error(), "/nonexistent/secret") != NULL);
  stdchk_options_init(&options);
  options.manager = "/nonexistent/address";
  MUST(stdchk_connect(&options) == NULL && errno != 0);
  MUST(strlen(stdchk_error()) > 10);
}

struct writer {
  stdchk_pool* pool;
  stdchk_file* shared;
  const unsigned char* bytes; /* 8 MiB */
  unsigned number;
};

/* Writes its own file, and every second MiB of the shared file. */
static void* write_two_files(void* argument) {
  const struct writer* self = argument;
  char name[32];
  snprintf(name, sizeof(name), "thread.N%u.T1", self->number);
  stdchk_file* own = open_file(self->pool, name, O_WRONLY | O_CREAT);
  for (size_t mib = 0; mib < 8; ++mib) {
    MUST(stdchk_write(own, self->bytes + mib * MIB, MIB) == (ssize_t)MIB);
    if (mib % 2 != self->number) continue;
    MUST(stdchk_pwrite(self->shared, self->bytes + mib * MIB, MIB, mib * MIB) == (ssize_t)MIB);
  }
  MUST(stdchk_close(own) == 0);
  check_file(self->pool, name, self->bytes, 8 * MIB);
  return NULL;
}

static void threads_at_once(stdchk_pool* pool) {
  pthread_t threads[2];
  struct writer writers[2];
  unsigned char* bytes[2] = {random_bytes(7, 8 * MIB), random_bytes(8, 8 * MIB)};
  stdchk_file* shared = open_file(pool, "shared.N0.T1", O_WRONLY | O_CREAT);
  for (unsigned i = 0; i < 2; ++i) {
    writers[i] = (struct writer){pool, shared, bytes[i], i};
    MUST(pthread_create(&threads[i], NULL, write_two_files, &writers[i]) == 0);
  }
  for (unsigned i = 0; i < 2; ++i) MUST(pthread_join(threads[i], NULL) == 0);
  MUST(stdchk_close(shared) == 0);
  for (size_t mib = 1; mib < 8; mib += 2) memcpy(bytes[0] + mib * MIB, bytes[1] + mib * MIB, MIB);
  check_file(pool, "shared.N0.T1", bytes[0], 8 * MIB);
  free(bytes[0]);
  free(bytes[1]);
}

int main(int argc, char** argv) {
  static const struct check_case cases[] = {{"offsets", at_any_offset},
                                            {"truncate", truncated},
                                            {"abort", aborted},
                                            {"reserve", without_a_copy},
                                            {"sync", visible_when_promised},
                                            {"errors", failures_have_a_sentence},
                                            {"threads", threads_at_once}};
  return run_case(cases, sizeof(cases) / sizeof(*cases), argc, argv);
}
