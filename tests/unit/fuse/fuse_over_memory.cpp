// Mounts a pool that lives in this process: fuse_over_memory MOUNTPOINT [SECOND_MOUNTPOINT]. Prints
// "ready" when all mounts work; ends at SIGTERM, SIGINT or unmount.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "fuse/mount.h"
#include "tests/unit/fuse/memory_filesystem.h"

int main(int argc, char** argv) {
  using namespace stdchk;
  sigset_t ends;
  sigemptyset(&ends);
  for (int signal : {SIGTERM, SIGINT, SIGUSR2}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  log::start("fuse_over_memory", log::Level::kInfo);
  SystemClock clock;
  auto pool = std::make_shared<test::MemoryPool>();
  if (const char* count = getenv("STDCHK_TEST_REPLACED_MAX"))
    pool->replaced_max = strtoull(count, nullptr, 10);
  std::vector<std::unique_ptr<test::MemoryFilesystem>> filesystems;
  std::vector<std::unique_ptr<mount::Mount>> mounts;
  mount::MountOptions options;
  options.allow_other = true;
  if (const char* off = getenv("STDCHK_TEST_WRITEBACK"))
    options.bridge.writeback = strcmp(off, "off") != 0;
  if (const char* mode = getenv("STDCHK_TEST_READS")) {
    bool direct = strcmp(mode, "direct") == 0;
    options.bridge.read_mode = direct ? mount::ReadMode::kDirect : mount::ReadMode::kCached;
  }
  for (int i = 1; i < argc; i++) {
    options.mountpoint = argv[i];
    filesystems.push_back(std::make_unique<test::MemoryFilesystem>(pool));
    auto mounted = mount::Mount::start(*filesystems.back(), clock, options);
    if (!mounted) return 1;
    (*mounted)->on_end([] { kill(getpid(), SIGUSR2); });
    mounts.push_back(std::move(*mounted));
  }
  puts("ready");
  fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  mounts.clear();
  return 0;
}
