// The program of a guest in fork_vm_test.py: holds memory, clones its machine, and lets each clone
// check a share.
//
//   fork_guest ... mib=N clones=N nested=N rounds=N watch=1
//
// The arguments are the kernel's command line. The machine's console shows the results.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fork/library/stdchk_fork.h"

static uint64_t* memory;
static size_t words;

static uint64_t expected(size_t i) { return i * 2654435761u + 1; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t wrong_words(int id, uint32_t count) {
  size_t wrong = 0;
  for (size_t i = (size_t)(id - 1) * 512; i < words; i += (size_t)count * 512)
    wrong += memory[i + 1] != expected(i + 1);
  return wrong;
}

// The first word of the machine's disk, which is written first where `written` is not 0.
static uint64_t disk_word(uint64_t written) {
  uint64_t word = written;
  const int disk = open("/dev/vda", O_RDWR | O_DSYNC);
  if (disk < 0) return 0;
  if (written != 0 && pwrite(disk, &word, sizeof word, 0) != sizeof word) word = 1;
  if (written == 0 && pread(disk, &word, sizeof word, 0) != sizeof word) word = 2;
  close(disk);
  return word;
}

// Clones the machine; each clone says its id, its parent's number, and how many of its words are
// wrong.
static void round_of(int clones, int nested, uint64_t parent) {
  sf_ticket ticket;
  if (sf_request_ticket((uint32_t)clones, 0, &ticket) < 0) {
    printf("no ticket: %s\n", sf_error());
    return;
  }
  const double began = now();
  const int id = sf_clone(&ticket);
  if (id < 0) {
    printf("no clone: %s\n", sf_error());
    return;
  }
  if (id > 0) {
    const size_t wrong = wrong_words(id, ticket.count);
    const uint64_t disk = disk_word(0);
    memory[0] = parent * 100 + (uint64_t)id;  // nobody else sees this
    disk_word(memory[0]);
    if (nested > 0) round_of(nested, 0, memory[0]);
    char text[128];
    const int n = snprintf(text, sizeof text, "clone %d of %lu wrong %zu disk %lu", id,
                           (unsigned long)parent, wrong, (unsigned long)disk);
    sf_exit_with(0, text, (size_t)n);
  }
  static sf_result results[64];
  const int bad = sf_join_results(&ticket, results);
  for (uint32_t i = 0; i < ticket.count; i++) {
    printf("result of %lu: %u %.*s\n", (unsigned long)parent, results[i].id,
           (int)results[i].value_bytes, results[i].value);
  }
  printf("joined %u of %lu bad %d own %lu disk %lu after %.2f s\n", ticket.count,
         (unsigned long)parent, bad, (unsigned long)memory[0], (unsigned long)disk_word(0),
         now() - began);
  fflush(stdout);
}

int main(int argc, char** argv) {
  int mib = 64, clones = 0, nested = 0, rounds = 1, watch = 0;
  for (int i = 1; i < argc; i++) {
    sscanf(argv[i], "mib=%d", &mib);
    sscanf(argv[i], "clones=%d", &clones);
    sscanf(argv[i], "nested=%d", &nested);
    sscanf(argv[i], "rounds=%d", &rounds);
    sscanf(argv[i], "watch=%d", &watch);
  }
  words = ((size_t)mib << 20) / 8;
  memory = malloc(words * 8);
  for (size_t i = 0; i < words; i++) memory[i] = expected(i);
  memory[0] = 7;
  disk_word(7);
  printf("ready with %d MiB\n", mib);
  fflush(stdout);
  for (int i = 0; clones > 0 && i < rounds; i++) round_of(clones, nested, 7);
  printf("finished\n");
  fflush(stdout);
  for (;;) {
    sleep(1);
    if (watch == 0) continue;
    printf("watched wrong %zu\n", wrong_words(1, 1));
    fflush(stdout);
  }
}
