/* Writes the images of four ranks for three timesteps, and asks for the newest complete set.
 *
 *   cc c_sets.c $(pkg-config --cflags --libs stdchk) -o c_sets
 *   STDCHK_MANAGER=ADDRESS_OR_FILE STDCHK_SECRET_FILE=FILE ./c_sets FOLDER
 *
 * The images of a timestep are written at once, by a queue.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdchk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, BYTES = 1 << 20 };

static int give_up(const char* what) {
  fprintf(stderr, "%s: %s\n", what, stdchk_error());
  return 1;
}

/* Queues the write and the close of each rank's image, and waits for the results. */
static int save(stdchk_pool* pool, stdchk_queue* queue, const char* folder, const char* bytes,
                int timestep) {
  struct stdchk_completion results[2 * RANKS];
  char path[256];
  for (int rank = 0; rank < RANKS; ++rank) {
    snprintf(path, sizeof(path), "%s/heat.N%d.T%d", folder, rank, timestep);
    stdchk_file* image = stdchk_open(pool, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (image == NULL) return give_up(path);
    if (stdchk_queue_pwrite(queue, image, bytes, BYTES, 0, NULL) != 0) return give_up("write");
    if (stdchk_queue_close(queue, image, NULL) != 0) return give_up("close");
  }
  for (int left = 2 * RANKS; left > 0;) {
    const int count = stdchk_queue_wait(queue, results, left, 60000);
    if (count <= 0) return give_up("wait");
    for (int i = 0; i < count; ++i) {
      if (results[i].error == 0) continue;
      fprintf(stderr, "an image was not written: %s\n", results[i].message);
      return 1;
    }
    left -= count;
  }
  return 0;
}

int main(int argc, char** argv) {
  const char* folder = argc > 1 ? argv[1] : "c-sets";
  char* bytes = calloc(1, BYTES);
  stdchk_pool* pool = stdchk_connect(NULL);
  if (bytes == NULL || pool == NULL) return give_up("connect");
  if (stdchk_mkdir(pool, folder, 0755) != 0 && errno != EEXIST) return give_up("mkdir");
  /* Four images make a set complete; the two newest complete sets stay. */
  if (stdchk_policy_set(pool, folder, "images=4 keep=2") != 0) return give_up("policy");
  stdchk_queue* queue = stdchk_queue_create(pool, 2 * RANKS, 0);
  if (queue == NULL) return give_up("queue");
  for (int timestep = 1; timestep <= 3; ++timestep) {
    memset(bytes, timestep, BYTES);
    if (save(pool, queue, folder, bytes, timestep) != 0) return 1;
  }
  if (stdchk_queue_destroy(queue) != 0) return give_up("queue");
  struct stdchk_set latest;
  if (stdchk_set_latest(pool, folder, "heat", &latest) != 0) return give_up("latest");
  printf("%s: the newest complete set is %s, %d images of %d bytes\n", folder, latest.name,
         (int)latest.images, (int)(latest.size_bytes / latest.images));
  stdchk_disconnect(pool);
  free(bytes);
  return 0;
}
