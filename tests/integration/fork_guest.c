// The program of a guest in fork_vm_test.py: holds memory, clones its machine, and lets each clone
// check a share.
//
//   fork_guest ... mib=N clones=N nested=N rounds=N watch=1
//       used=N fresh=N drop=1 echo=1 probe=ADDRESS,ADDRESS
//
// - used: MiB that the program has used and freed before it is ready.
// - fresh: MiB of new memory that a clone uses, if the host has made it.
// - drop: such a clone frees its parent's data.
// - echo: the machine and its clones answer messages at UDP port 7000.
// - probe: the first machine sends messages to these addresses, by way of its host.
//
// The arguments are the kernel's command line. The machine's console shows the results.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
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

// Uses new memory, and gives it back to the system. Returns the number of pages that were not zeros.
static size_t use_memory(int mib) {
  const size_t bytes = (size_t)mib << 20;
  volatile uint64_t* const fresh =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  size_t wrong = 0;
  for (size_t i = 0; i < bytes / 8; i += 512) {
    wrong += fresh[i] != 0;
    for (size_t j = i; j < i + 512; j++) fresh[j] = j + 1;
  }
  munmap((void*)fresh, bytes);
  return wrong;
}

#define PORT 7000

static struct sockaddr_in place_of(in_addr_t ip, int port) {
  struct sockaddr_in place = {.sin_family = AF_INET};
  place.sin_addr.s_addr = ip;
  place.sin_port = htons((uint16_t)port);
  return place;
}

static int message_socket(int seconds_max) {
  const int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const struct timeval longest = {seconds_max, 0};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  return s;
}

// Returns the address of the interface eth0.
static struct in_addr own_address(void) {
  struct ifreq request = {.ifr_name = "eth0"};
  const int s = message_socket(1);
  struct sockaddr_in own = {0};
  if (ioctl(s, SIOCGIFADDR, &request) == 0) memcpy(&own, &request.ifr_addr, sizeof own);
  close(s);
  return own.sin_addr;
}

// Answers each message by this machine's id and the message, for ever.
static void echo(void) {
  const int s = message_socket(1);
  const struct sockaddr_in own = place_of(INADDR_ANY, PORT);
  if (bind(s, (const struct sockaddr*)&own, sizeof own) != 0) perror("bind");
  for (;;) {
    char heard[64], text[96];
    struct sockaddr_in from;
    socklen_t bytes = sizeof from;
    const ssize_t n = recvfrom(s, heard, sizeof heard - 1, 0, (struct sockaddr*)&from, &bytes);
    if (n < 0) {
      sf_identify();  // the host may have cloned this machine
      continue;
    }
    heard[n] = 0;
    snprintf(text, sizeof text, "%d %s", sf_id(), heard);
    sendto(s, text, strlen(text), 0, (const struct sockaddr*)&from, bytes);
  }
}

// Sends messages to a machine until it answers, at most 5 s, and prints the answer.
static void probe(struct in_addr address) {
  const int s = message_socket(1);
  const struct sockaddr_in to = place_of(address.s_addr, PORT);
  char text[96];
  ssize_t n = -1;
  for (int i = 0; i < 5 && n < 0; i++) {
    sendto(s, "probe", 5, 0, (const struct sockaddr*)&to, sizeof to);
    n = recv(s, text, sizeof text - 1, 0);
  }
  text[n < 0 ? 0 : n] = 0;
  printf("probe of %s by %d: [%s]\n", inet_ntoa(address), sf_id(), text);
  fflush(stdout);
  close(s);
}

// Sends everything else by way of address 1 of the machine's own network.
static void route_by_host(void) {
  const in_addr_t host = (own_address().s_addr & htonl(0xffffff00)) | htonl(1);
  const struct sockaddr_in all = place_of(INADDR_ANY, 0), by = place_of(host, 0);
  struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
  memcpy(&route.rt_dst, &all, sizeof all);
  memcpy(&route.rt_genmask, &all, sizeof all);
  memcpy(&route.rt_gateway, &by, sizeof by);
  const int s = message_socket(1);
  if (ioctl(s, SIOCADDRT, &route) != 0) perror("route");
  close(s);
}

// Takes the machine's address, asks `probed`, and clones the machine. Clones ask their parent.
static void be_in_network(int clones, char* probed) {
  if (sf_identify() < 0) printf("no identity: %s\n", sf_error());
  const struct in_addr parent = own_address();
  if (*probed != 0) route_by_host();
  for (char* each = strtok(probed, ","); each != NULL; each = strtok(NULL, ",")) {
    const struct in_addr other = {inet_addr(each)};
    probe(other);
  }
  sf_ticket ticket;
  if (clones > 0 && sf_request_ticket((uint32_t)clones, 0, &ticket) == 0 && sf_clone(&ticket) > 0)
    probe(parent);
  printf("machine %d has %s\n", sf_id(), inet_ntoa(own_address()));
  fflush(stdout);
  echo();
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

// Runs in a clone that the host has made. Frees the parent's data, or uses new memory.
static void be_clone(int fresh, int drop) {
  if (drop != 0) {
    free(memory);
    printf("dropped\n");
  }
  if (fresh > 0) printf("fresh %d wrong %zu\n", fresh, use_memory(fresh));
  fflush(stdout);
  for (;;) pause();
}

int main(int argc, char** argv) {
  int mib = 64, clones = 0, nested = 0, rounds = 1, watch = 0, used = 0, fresh = 0, drop = 0;
  int in_network = 0;
  char probed[128] = "";
  for (int i = 1; i < argc; i++) {
    sscanf(argv[i], "mib=%d", &mib);
    sscanf(argv[i], "clones=%d", &clones);
    sscanf(argv[i], "nested=%d", &nested);
    sscanf(argv[i], "rounds=%d", &rounds);
    sscanf(argv[i], "watch=%d", &watch);
    sscanf(argv[i], "used=%d", &used);
    sscanf(argv[i], "fresh=%d", &fresh);
    sscanf(argv[i], "drop=%d", &drop);
    sscanf(argv[i], "echo=%d", &in_network);
    sscanf(argv[i], "probe=%127s", probed);
  }
  words = ((size_t)mib << 20) / 8;
  memory = malloc(words * 8);
  for (size_t i = 0; i < words; i++) memory[i] = expected(i);
  memory[0] = 7;
  disk_word(7);
  if (used > 0) use_memory(used);
  printf("ready with %d MiB\n", mib);
  fflush(stdout);
  if (in_network != 0) be_in_network(clones, probed);
  for (int i = 0; clones > 0 && i < rounds; i++) round_of(clones, nested, 7);
  printf("finished\n");
  fflush(stdout);
  for (;;) {
    sleep(1);
    if ((fresh > 0 || drop != 0) && sf_identify() > 0) be_clone(fresh, drop);
    if (watch == 0) continue;
    printf("watched wrong %zu\n", wrong_words(1, 1));
    fflush(stdout);
  }
}
