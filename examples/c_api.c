/* Writes a checkpoint image into a pool and reads it back.
 *
 *   cc c_api.c $(pkg-config --cflags --libs stdchk) -o c_api
 *   STDCHK_MANAGER=ADDRESS_OR_FILE STDCHK_SECRET_FILE=FILE ./c_api [NAME [MEBIBYTES]]
 */
#include <fcntl.h>
#include <stdchk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP (1 << 20)

static int give_up(const char* what) {
  fprintf(stderr, "%s: %s\n", what, stdchk_error());
  return 1;
}

static void fill(unsigned char* bytes, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) bytes[i] = (unsigned char)((i * 31 + seed * 7) >> 3);
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "example.N0.T1";
  const unsigned steps = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
  unsigned char* expected = malloc(STEP);
  unsigned char* got = malloc(STEP);
  stdchk_pool* pool = stdchk_connect(NULL);
  if (pool == NULL) return give_up("connect");

  stdchk_file* file = stdchk_open(pool, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file == NULL) return give_up("open for writing");
  for (unsigned i = 0; i < steps; ++i) {
    if (i % 2 == 0) { /* with a copy */
      fill(expected, STEP, i);
      if (stdchk_write(file, expected, STEP) != STEP) return give_up("write");
      continue;
    }
    for (size_t done = 0; done < STEP;) { /* straight into the library's buffer */
      size_t count = STEP - done;
      unsigned char* buffer = stdchk_reserve(file, &count);
      if (buffer == NULL) return give_up("reserve");
      fill(expected, STEP, i);
      memcpy(buffer, expected + done, count);
      if (stdchk_submit(file, count) != 0) return give_up("submit");
      done += count;
    }
  }
  if (stdchk_close(file) != 0) return give_up("close");

  file = stdchk_open(pool, name, O_RDONLY, 0);
  if (file == NULL) return give_up("open for reading");
  for (unsigned i = 0; i < steps; ++i) {
    fill(expected, STEP, i);
    if (stdchk_read(file, got, STEP) != STEP) return give_up("read");
    if (memcmp(expected, got, STEP) != 0) {
      fprintf(stderr, "the image differs in MiB %u\n", i);
      return 1;
    }
  }
  if (stdchk_close(file) != 0) return give_up("close");
  stdchk_disconnect(pool);
  printf("%s: %u MiB written and read back equal\n", name, steps);
  free(expected);
  free(got);
  return 0;
}
