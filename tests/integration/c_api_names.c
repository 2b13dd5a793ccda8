/* Calls the functions of stdchk.h for names, sets, the drain and queues, as a program compiled
 * against the installed library.
 *
 *   c-api-names CASE
 *
 * STDCHK_MANAGER and STDCHK_SECRET_FILE name the pool. Prints "good", or the first failed
 * expectation, and then exits with 1.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tests/integration/c_api_checks.h"

static void names_are_made_and_removed(stdchk_pool* pool) {
  struct stdchk_attributes found;
  MUST(stdchk_mkdir(pool, "names", 0750) == 0);
  MUST(stdchk_mkdir(pool, "names", 0750) == -1 && errno == EEXIST);
  MUST(stdchk_mkdir(pool, "names/../names/./inner/", 0755) == 0);
  MUST(stdchk_stat(pool, "/names", &found) == 0);
  MUST(found.mode == (S_IFDIR | 0750) && found.id != 0);
  write_image(pool, "names/b", (const unsigned char*)"four", 4);
  write_image(pool, "names/a", (const unsigned char*)"x", 1);
  stdchk_dir* dir = stdchk_opendir(pool, "names");
  MUST(dir != NULL);
  const char* expected[] = {"a", "b", "inner"};
  for (size_t i = 0; i < 3; ++i) {
    const struct stdchk_entry* entry = stdchk_readdir(dir);
    MUST(entry != NULL && strcmp(entry->name, expected[i]) == 0);
    if (i == 1) MUST(entry->attributes.size_bytes == 4 && S_ISREG(entry->attributes.mode));
  }
  MUST(stdchk_readdir(dir) == NULL);
  stdchk_closedir(dir);
  MUST(stdchk_opendir(pool, "names/a") == NULL && errno == ENOTDIR);
  MUST(stdchk_rename(pool, "names/a", "names/b", RENAME_NOREPLACE) == -1 && errno == EEXIST);
  MUST(stdchk_rename(pool, "names/a", "names/b", RENAME_EXCHANGE) == 0);
  MUST(stdchk_stat(pool, "names/a", &found) == 0 && found.size_bytes == 4);
  MUST(stdchk_rename(pool, "names/a", "names/inner/c", 0) == 0);
  MUST(stdchk_rename(pool, "names/a", "names/d", 0) == -1 && errno == ENOENT);
  MUST(stdchk_rename(pool, "/", "names/d", 0) == -1 && errno == EBUSY);
  MUST(stdchk_rmdir(pool, "names/inner") == -1 && errno == ENOTEMPTY);
  MUST(stdchk_unlink(pool, "names/inner") == -1 && errno == EISDIR);
  MUST(stdchk_unlink(pool, "names/inner/c") == 0);
  MUST(stdchk_rmdir(pool, "names/inner") == 0);
  MUST(stdchk_lstat(pool, "names/inner", &found) == -1 && errno == ENOENT);
}

static void links_are_followed(stdchk_pool* pool) {
  struct stdchk_attributes found;
  char target[64];
  MUST(stdchk_mkdir(pool, "links", 0755) == 0);
  MUST(stdchk_mkdir(pool, "links/real", 0755) == 0);
  MUST(stdchk_symlink(pool, "real", "links/short") == 0);
  MUST(stdchk_symlink(pool, "../links/short/file", "links/long") == 0);
  MUST(stdchk_symlink(pool, "loop", "links/loop") == 0);
  MUST(stdchk_symlink(pool, "/etc/passwd", "links/out") == 0);
  MUST(stdchk_symlink(pool, "x", "links/out") == -1 && errno == EEXIST);
  write_image(pool, "links/long", (const unsigned char*)"abc", 3); /* through the links */
  MUST(stdchk_stat(pool, "links/real/file", &found) == 0 && found.size_bytes == 3);
  check_file(pool, "links/short/file", (const unsigned char*)"abc", 3);
  MUST(stdchk_lstat(pool, "links/long", &found) == 0 && S_ISLNK(found.mode));
  MUST(stdchk_readlink(pool, "links/short", target, sizeof(target)) == 4);
  MUST(memcmp(target, "real", 4) == 0);
  MUST(stdchk_readlink(pool, "links/short", target, 2) == 2);
  MUST(stdchk_readlink(pool, "links/real", target, 2) == -1 && errno == EINVAL);
  MUST(stdchk_stat(pool, "links/loop", &found) == -1 && errno == ELOOP);
  MUST(stdchk_open(pool, "links/out", O_RDONLY, 0) == NULL && errno == EXDEV);
  MUST(stdchk_open(pool, "links/long", O_RDONLY | O_NOFOLLOW, 0) == NULL && errno == ELOOP);
  MUST(stdchk_open(pool, "links/real/none", O_RDONLY, 0) == NULL && errno == ENOENT);
  MUST(stdchk_open(pool, "links/real", O_RDONLY, 0) == NULL && errno == EISDIR);
  MUST(stdchk_lchown(pool, "links/out", 77, 78) == 0); /* the link, although it leads nowhere */
  MUST(stdchk_lutimens(pool, "links/out", 5, 6) == 0);
  MUST(stdchk_lstat(pool, "links/out", &found) == 0);
  MUST(found.uid == 77 && found.gid == 78 && found.mtime_ns == 6);
  MUST(stdchk_unlink(pool, "links/long") == 0); /* the link, not its target */
  check_file(pool, "links/real/file", (const unsigned char*)"abc", 3);
}

static void attributes_are_kept(stdchk_pool* pool) {
  struct stdchk_attributes found;
  struct stdchk_space space;
  char value[32];
  write_image(pool, "attributes", (const unsigned char*)"x", 1);
  MUST(stdchk_chmod(pool, "attributes", 0600) == 0);
  MUST(stdchk_utimens(pool, "attributes", INT64_MIN, 1234567890123456789) == 0);
  MUST(stdchk_chown(pool, "attributes", (uid_t)-1, 4321) == 0);
  MUST(stdchk_stat(pool, "attributes", &found) == 0);
  MUST(found.mode == (S_IFREG | 0600) && found.mtime_ns == 1234567890123456789);
  MUST(found.gid == 4321 && found.links == 1 && found.version > 0);
  MUST(stdchk_setxattr(pool, "attributes", "user.a", "one\0two", 7, XATTR_CREATE) == 0);
  MUST(stdchk_setxattr(pool, "attributes", "user.a", "", 0, XATTR_CREATE) == -1 && errno == EEXIST);
  MUST(stdchk_setxattr(pool, "attributes", "user.b", "", 0, XATTR_REPLACE) == -1);
  MUST(errno == ENODATA);
  MUST(stdchk_getxattr(pool, "attributes", "user.a", NULL, 0) == 7);
  MUST(stdchk_getxattr(pool, "attributes", "user.a", value, sizeof(value)) == 7);
  MUST(memcmp(value, "one\0two", 7) == 0);
  MUST(stdchk_getxattr(pool, "attributes", "user.a", value, 6) == -1 && errno == ERANGE);
  MUST(stdchk_listxattr(pool, "attributes", value, sizeof(value)) == 7);
  MUST(memcmp(value, "user.a", 7) == 0);
  MUST(stdchk_removexattr(pool, "attributes", "user.a") == 0);
  MUST(stdchk_getxattr(pool, "attributes", "user.a", value, 6) == -1 && errno == ENODATA);
  MUST(stdchk_statfs(pool, &space) == 0);
  MUST(space.total_bytes >= 64 * MIB && space.free_bytes <= space.total_bytes && space.files > 0);
  stdchk_file* file = open_file(pool, "attributes", O_WRONLY | O_APPEND);
  MUST(stdchk_write(file, "yz", 2) == 2);
  MUST(stdchk_fstat(file, &found) == 0 && found.size_bytes == 3); /* not committed yet */
  MUST(stdchk_stat(pool, "attributes", &found) == 0);
  MUST(stdchk_close(file) == 0);
}

static void sets_are_listed(stdchk_pool* pool) {
  char name[64], value[32];
  struct stdchk_set latest;
  struct stdchk_set* sets = NULL;
  MUST(stdchk_mkdir(pool, "sets", 0755) == 0);
  MUST(stdchk_set_list(pool, "sets", &sets) == 0);
  stdchk_free(sets);
  MUST(stdchk_set_latest(pool, "sets", NULL, &latest) == -1 && errno == ENOENT);
  MUST(stdchk_policy_set(pool, "sets", "images=2 keep=all") == 0);
  MUST(stdchk_policy_set(pool, "sets", "images=many") == -1 && errno == EINVAL);
  MUST(strstr(stdchk_error(), "images") != NULL);
  MUST(stdchk_policy_get(pool, "sets", "images", value, sizeof(value)) == 1);
  MUST(strcmp(value, "2") == 0);
  MUST(stdchk_policy_get(pool, "sets", "images", value, 1) == -1 && errno == ERANGE);
  MUST(stdchk_policy_get(pool, "sets", "nonsense", value, 9) == -1 && errno == EINVAL);
  for (unsigned step = 1; step <= 3; ++step) {
    for (unsigned node = 0; node < (step < 3 ? 2U : 1U); ++node) {
      snprintf(name, sizeof(name), "sets/app.N%u.T%u", node, step);
      write_image(pool, name, (const unsigned char*)name, sizeof(name));
    }
  }
  MUST(stdchk_set_list(pool, "sets", &sets) == 3);
  MUST(strcmp(sets[0].name, "app.*.T3") == 0 && strcmp(sets[0].application, "app") == 0);
  MUST(sets[0].images == 1 && sets[0].images_wanted == 2 && sets[0].flags == 0);
  MUST(sets[1].timestep == 2 && sets[1].size_bytes == 2 * sizeof(name));
  MUST(sets[1].flags == (STDCHK_SET_COMPLETE | STDCHK_SET_LATEST));
  MUST(sets[2].flags == STDCHK_SET_COMPLETE);
  stdchk_free(sets);
  MUST(stdchk_set_latest(pool, "sets", "app", &latest) == 0 && latest.timestep == 2);
  MUST(stdchk_set_latest(pool, "sets", "other", &latest) == -1 && errno == ENOENT);
  MUST(stdchk_set_pin(pool, "sets", "app.*.T1", 1) == 0);
  MUST(stdchk_set_pin(pool, "sets", "app.*.T9", 1) == -1 && errno == ENOENT);
  MUST(stdchk_set_pin(pool, "sets", "nonsense", 1) == -1 && errno == ENOENT);
  MUST(stdchk_set_list(pool, "sets", &sets) == 3 && (sets[2].flags & STDCHK_SET_PINNED) != 0);
  stdchk_free(sets);
  MUST(stdchk_set_pin(pool, "sets", "app.*.T1", 0) == 0);
}

static void directories_are_sets(stdchk_pool* pool) {
  char value[32];
  struct stdchk_set latest;
  struct stdchk_set* sets = NULL;
  MUST(stdchk_mkdir(pool, "steps", 0755) == 0);
  MUST(stdchk_policy_set(pool, "steps", "set=directory set-names=step-* marker=.metadata") == 0);
  MUST(stdchk_policy_set(pool, "steps", "set=nonsense") == -1 && errno == EINVAL);
  MUST(stdchk_mkdir(pool, "steps/step-1", 0755) == 0);
  MUST(stdchk_policy_get(pool, "steps/step-1", "marker", value, sizeof(value)) == 9);
  MUST(strcmp(value, ".metadata") == 0);
  MUST(stdchk_policy_get(pool, "/", "set", value, sizeof(value)) == 5);
  MUST(strcmp(value, "names") == 0);
  write_image(pool, "steps/step-1/shard", (const unsigned char*)"1", 1);
  MUST(stdchk_set_list(pool, "steps", &sets) == 1);
  MUST(strcmp(sets[0].name, "step-1") == 0 && sets[0].flags == 0);
  MUST(sets[0].application[0] == '\0' && sets[0].timestep == 0 && sets[0].size_bytes == 1);
  stdchk_free(sets);
  MUST(stdchk_set_latest(pool, "steps", NULL, &latest) == -1 && errno == ENOENT);
  write_image(pool, "steps/step-1/.metadata", (const unsigned char*)"1", 1);
  MUST(stdchk_set_latest(pool, "steps", NULL, &latest) == 0);
  MUST(strcmp(latest.name, "step-1") == 0);
  MUST(stdchk_mkdir(pool, "steps/step-2", 0755) == 0);
  write_image(pool, "steps/step-2/shard", (const unsigned char*)"2", 1);
  MUST(stdchk_set_commit(pool, "steps/step-2/shard") == -1 && errno == ENOTDIR);
  MUST(stdchk_set_commit(pool, "steps/step-2") == 0);
  MUST(stdchk_set_latest(pool, "steps", NULL, &latest) == 0);
  MUST(strcmp(latest.name, "step-2") == 0);
  MUST(stdchk_set_pin(pool, "steps", "step-1", 1) == 0);
  MUST(stdchk_set_pin(pool, "steps", "step-3", 1) == -1 && errno == ENOENT);
  MUST(stdchk_set_list(pool, "steps", &sets) == 2 && (sets[1].flags & STDCHK_SET_PINNED) != 0);
  stdchk_free(sets);
}

static void drained_files_are_safe(stdchk_pool* pool) {
  struct stdchk_safety safety;
  struct stdchk_attributes found;
  MUST(stdchk_mkdir(pool, "safe", 0755) == 0);
  write_image(pool, "safe/a", (const unsigned char*)"one", 3);
  write_image(pool, "safe/b", (const unsigned char*)"two", 3);
  MUST(stdchk_wait(pool, "safe", 0, 1000) == -1 && errno == EINVAL);
  MUST(stdchk_drain(pool, "safe/a") == 0);
  MUST(stdchk_wait(pool, "safe", STDCHK_WAIT_COPIES | STDCHK_WAIT_DRAIN, 30000) == 0);
  MUST(stdchk_safe(pool, "safe", &safety) == 0);
  MUST(safety.safe == 1 && safety.files == 2 && safety.unsafe_files == 0);
  MUST(stdchk_stat(pool, "safe/a", &found) == 0 && found.drain_state == STDCHK_DRAIN_DONE);
  stdchk_file* file = open_file(pool, "safe/b", O_WRONLY | O_TRUNC);
  MUST(stdchk_write(file, "three", 5) == 5);
  MUST(stdchk_close(file) == 0);
  MUST(stdchk_safe(pool, "safe/none", &safety) == -1 && errno == ENOENT);
}

static void without_a_drain_nothing_is_safe(stdchk_pool* pool) {
  struct stdchk_safety safety;
  write_image(pool, "undrained", (const unsigned char*)"one", 3);
  MUST(stdchk_drain(pool, "undrained") == -1 && errno == EOPNOTSUPP);
  MUST(stdchk_wait(pool, "undrained", STDCHK_WAIT_DRAIN, 1000) == -1 && errno == EOPNOTSUPP);
  MUST(stdchk_wait(pool, "undrained", STDCHK_WAIT_COPIES, 30000) == 0);
  MUST(stdchk_safe(pool, "undrained", &safety) == 0);
  MUST(safety.safe == 0 && safety.files == 1 && safety.unsafe_files == 1);
  MUST(strcmp(safety.first_unsafe, "undrained") == 0);
}

static void buffers_are_written_in_turn(stdchk_pool* pool) {
  unsigned char* bytes = random_bytes(11, 3 * MIB);
  unsigned char* got = malloc(3 * MIB);
  MUST(got != NULL);
  const struct iovec out[] = {
      {bytes, 100}, {bytes + 100, 0}, {bytes + 100, 2 * MIB}, {bytes + 100 + 2 * MIB, MIB - 100}};
  const struct iovec in[] = {{got, MIB}, {got + MIB, 2 * MIB}};
  stdchk_file* file = open_file(pool, "vector.N0.T1", O_RDWR | O_CREAT);
  MUST(stdchk_pwritev(file, out, 4, 7) == (ssize_t)(3 * MIB));
  MUST(stdchk_preadv(file, in, 2, 7) == (ssize_t)(3 * MIB));
  MUST(memcmp(bytes, got, 3 * MIB) == 0);
  MUST(stdchk_preadv(file, in, 2, 2 * MIB) == (ssize_t)(MIB + 7)); /* to the end of the file */
  MUST(stdchk_preadv(file, in, 2000, 0) == -1 && errno == EINVAL);
  MUST(stdchk_pwritev(file, out, -1, 0) == -1 && errno == EINVAL);
  MUST(stdchk_close(file) == 0);
  free(bytes);
  free(got);
}

/* Fetches `count` results, and marks their tags, which are 0 to 63. */
static uint64_t fetched(stdchk_queue* queue, int count) {
  struct stdchk_completion results[8];
  uint64_t tags = 0;
  while (count > 0) {
    const int got = stdchk_queue_wait(queue, results, count < 8 ? count : 8, 30000);
    MUST(got > 0);
    for (int i = 0; i < got; ++i) {
      if (results[i].error != 0) puts(results[i].message);
      MUST(results[i].error == 0 && results[i].code == STDCHK_ERROR_NONE);
      tags |= (uint64_t)1 << (uintptr_t)results[i].tag;
    }
    count -= got;
  }
  return tags;
}

static void calls_run_in_a_queue(stdchk_pool* pool) {
  unsigned char* bytes = random_bytes(12, 16 * MIB);
  unsigned char* got = calloc(16, MIB);
  struct stdchk_completion result;
  MUST(stdchk_queue_create(pool, 0, 1) == NULL && errno == EINVAL);
  stdchk_queue* queue = stdchk_queue_create(pool, 17, 3);
  MUST(queue != NULL && got != NULL);
  MUST(stdchk_queue_wait(queue, &result, 1, 30000) == 0); /* empty: at once */
  stdchk_file* file = open_file(pool, "queue.N0.T1", O_WRONLY | O_CREAT);
  for (uintptr_t i = 0; i < 16; ++i) {
    MUST(stdchk_queue_pwrite(queue, file, bytes + i * MIB, MIB, i * MIB, (void*)i) == 0);
  }
  /* The close runs after all writes, although three threads run them. */
  MUST(stdchk_queue_close(queue, file, (void*)16) == 0);
  MUST(stdchk_queue_sync(queue, file, (void*)17) == -1 && errno == EAGAIN);
  MUST(stdchk_queue_destroy(queue) == -1 && errno == EBUSY);
  MUST(fetched(queue, 17) == 0x1FFFF);
  check_file(pool, "queue.N0.T1", bytes, 16 * MIB);
  struct pollfd ready = {.fd = stdchk_queue_descriptor(queue), .events = POLLIN};
  MUST(poll(&ready, 1, 0) == 0);
  file = open_file(pool, "queue.N0.T1", O_RDONLY);
  for (uintptr_t i = 0; i < 16; ++i) {
    MUST(stdchk_queue_pread(queue, file, got + i * MIB, MIB, i * MIB, (void*)i) == 0);
  }
  MUST(poll(&ready, 1, 30000) == 1);
  MUST(fetched(queue, 16) == 0xFFFF);
  MUST(memcmp(bytes, got, 16 * MIB) == 0);
  MUST(poll(&ready, 1, 0) == 0);
  MUST(stdchk_queue_pwrite(queue, file, bytes, 1, 0, NULL) == 0); /* not open for writing */
  MUST(stdchk_queue_wait(queue, &result, 1, 30000) == 1);
  MUST(result.result == -1 && result.error == EINVAL);
  MUST(result.code == STDCHK_ERROR_INVALID_ARGUMENT && strstr(result.message, "writing") != NULL);
  MUST(stdchk_queue_destroy(queue) == 0);
  MUST(stdchk_close(file) == 0);
  free(bytes);
  free(got);
}

static void errors_have_numbers(stdchk_pool* pool) {
  MUST(stdchk_error_code() == STDCHK_ERROR_NONE);
  MUST(stdchk_open(pool, "none", O_RDONLY, 0) == NULL);
  MUST(stdchk_error_code() == STDCHK_ERROR_NOT_FOUND);
  MUST(strcmp(stdchk_code_name(STDCHK_ERROR_NO_SPACE), "NoSpace") == 0);
  MUST(strstr(stdchk_code_sentence(STDCHK_ERROR_NO_SPACE), "full") != NULL);
  MUST(strcmp(stdchk_code_name(54321), "Unknown") == 0);
  MUST(stdchk_code_is_transient(STDCHK_ERROR_DEADLINE) == 1);
  MUST(stdchk_code_is_transient(STDCHK_ERROR_NOT_FOUND) == 0);
  MUST(strchr(stdchk_version(), '.') != NULL);
}

int main(int argc, char** argv) {
  static const struct check_case cases[] = {{"names", names_are_made_and_removed},
                                            {"links", links_are_followed},
                                            {"attributes", attributes_are_kept},
                                            {"sets", sets_are_listed},
                                            {"directories", directories_are_sets},
                                            {"safe", drained_files_are_safe},
                                            {"unsafe", without_a_drain_nothing_is_safe},
                                            {"vectors", buffers_are_written_in_turn},
                                            {"queue", calls_run_in_a_queue},
                                            {"codes", errors_have_numbers}};
  return run_case(cases, sizeof(cases) / sizeof(*cases), argc, argv);
}
