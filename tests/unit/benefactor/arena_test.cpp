#include "benefactor/memory/arena.h"

#include <sys/mount.h>
#include <sys/statfs.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

using limits::kGiB;
using limits::kMiB;

Outcome<std::unique_ptr<Arena>> make(Backing backing, std::uint64_t bytes,
                                     const std::string& directory = {}) {
  const SystemClock clock;
  ArenaOptions options;
  options.backing = backing;
  options.bytes = bytes;
  options.directory = directory;
  return Arena::create(options, clock);
}

bool is_usable(const Arena& arena) {
  const MutableByteSpan bytes = arena.bytes();
  const bool empty = bytes.front() == std::byte{0} && bytes.back() == std::byte{0};
  std::ranges::fill(bytes, std::byte{0x5a});
  return empty && bytes[bytes.size() / 2] == std::byte{0x5a};
}

const char* const kPlenty = "MemTotal: 100000000 kB\nMemAvailable: 90000000 kB\n";

}  // namespace

TEST_CASE("anonymous memory is whole, zero, resident, and no more than was given") {
  const auto arena = make(Backing::kAnonymous, 64 * kMiB + 5000);
  REQUIRE(arena);
  CHECK((*arena)->bytes().size() == 64 * kMiB + 4096);
  const ArenaFacts facts = (*arena)->facts();
  CHECK(facts.backing == "anonymous");
  CHECK(facts.resident_bytes == facts.bytes);
  CHECK(facts.huge_bytes <= facts.bytes);
  CHECK((facts.huge_bytes > facts.bytes / 2 || !facts.advice.empty()));
  CHECK(is_usable(**arena));
}

TEST_CASE("a memfd, a ramdisk and a disk can be lent") {
  const auto memfd = make(Backing::kMemfd, 8 * kMiB);
  REQUIRE(memfd);
  CHECK((*memfd)->facts().resident_bytes == 8 * kMiB);
  CHECK(is_usable(**memfd));

  const TemporaryFolder folder;
  {
    const auto disk = make(Backing::kDisk, 8 * kMiB, folder.path());
    REQUIRE(disk);
    CHECK(is_usable(**disk));
    // The file has no name, so the kernel frees it with the process.
    CHECK(std::filesystem::is_empty(folder.path()));
  }
  if (std::filesystem::exists("/dev/shm")) {
    const auto ramdisk = make(Backing::kRamdisk, 8 * kMiB, "/dev/shm");
    REQUIRE(ramdisk);
    CHECK((*ramdisk)->facts().backing == "ramdisk /dev/shm");
    CHECK(is_usable(**ramdisk));
  }
}

TEST_CASE("a directory that is no ramdisk is refused with the remedy") {
  const auto arena = make(Backing::kRamdisk, 8 * kMiB, "/proc");
  REQUIRE_FALSE(arena);
  CHECK(arena.error().error.code == Code::kInvalidArgument);
  CHECK(arena.error().text.find("--disk") != std::string::npos);
  CHECK(make(Backing::kDisk, 8 * kMiB, "/nonexistent").error().text.find("/nonexistent") !=
        std::string::npos);
}

TEST_CASE("huge pages that are not reserved are refused with the command that reserves them") {
  const OtherMachine machine(std::string(kPlenty) +
                             "HugePages_Total: 10\nHugePages_Free: 8\nHugePages_Rsvd: 2\n"
                             "Hugepagesize: 2048 kB\n");
  const SystemClock clock;
  ArenaOptions options;
  options.backing = Backing::kHugetlb;
  options.bytes = 32 * kMiB;
  options.files = machine.files;
  const auto arena = Arena::create(options, clock);
  REQUIRE_FALSE(arena);
  CHECK(arena.error().error.code == Code::kNoMemory);
  CHECK(arena.error().text.find("sysctl -w vm.nr_hugepages=20") != std::string::npos);
}

TEST_CASE("reserved huge pages are used when this machine has them") {
  const HugePages pages = huge_pages();
  const auto arena = make(Backing::kHugetlb, 4 * kMiB);
  if (pages.page_bytes == 0 || pages.free * pages.page_bytes < 4 * kMiB) {
    WARN("SKIPPED in part: no huge pages are reserved here; checked that they are refused");
    REQUIRE_FALSE(arena);
    CHECK(arena.error().error.code == Code::kNoMemory);
    return;
  }
  REQUIRE(arena);
  CHECK((*arena)->facts().huge_bytes == 4 * kMiB);
}

TEST_CASE("more than the machine has is refused before it is taken") {
  const auto arena = make(Backing::kAnonymous, std::uint64_t{1} << 50);
  REQUIRE_FALSE(arena);
  CHECK(arena.error().error.code == Code::kNoMemory);
  CHECK(arena.error().text.find("lend less (--memory)") != std::string::npos);

  const OtherMachine small("MemAvailable: 1048576 kB\n");
  CHECK(check_memory(kGiB - kMemoryKeptFree, small.files));
  CHECK_FALSE(check_memory(kGiB - kMemoryKeptFree + 1, small.files));
  CHECK(make(Backing::kAnonymous, 100).error().error.code == Code::kInvalidArgument);
}

TEST_CASE("the limit of a version 2 control group above this one counts") {
  OtherMachine machine(kPlenty, "0::/job/step\n");
  machine.group("/job/step", "memory.max", "max\n");
  machine.group("/job/step", "memory.current", "1000\n");
  machine.group("/job", "memory.max", "1073741824\n");
  machine.group("/job", "memory.current", "209715200\n");
  machine.group("/job", "memory.stat", "anon 5\ninactive_file 104857600\n");
  CHECK(check_memory(924 * kMiB, machine.files));
  const auto refused = check_memory(925 * kMiB, machine.files);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("control group /job ") != std::string::npos);
}

TEST_CASE("who watches memory pressure leaves twice the reserve to others") {
  PressureLimits limits;
  limits.reserve_bytes = 200 * kMiB;
  OtherMachine machine("MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n", "0::/job\n");
  CHECK(check_memory(624 * kMiB, machine.files, limits));
  CHECK_FALSE(check_memory(625 * kMiB, machine.files, limits));
  // The reserve is at most a quarter of a small group's limit.
  machine.group("/job", "memory.max", "419430400\n");
  machine.group("/job", "memory.current", "0\n");
  CHECK(check_memory(200 * kMiB, machine.files, limits));
  CHECK_FALSE(check_memory(201 * kMiB, machine.files, limits));
  CHECK(check_memory(400 * kMiB, machine.files));
}

TEST_CASE("the OOM killer is told to come sooner, never later, and that can be taken back") {
  const OtherMachine machine(kPlenty);
  CHECK_FALSE(raise_oom_score(800, machine.files));
  const std::string file = machine.files.proc + "/self/oom_score_adj";
  write_file(file, "-5\n");
  CHECK(raise_oom_score(800, machine.files) == -5);
  CHECK(read_file(file) == "800");
  CHECK_FALSE(raise_oom_score(500, machine.files));
  CHECK(read_file(file) == "800");
  restore_oom_score(-5, machine.files);
  CHECK(read_file(file) == "-5");
}

TEST_CASE("the limit of a version 1 control group counts, also when its path is the host's") {
  OtherMachine machine(kPlenty, "9:memory:/only/the/host/sees\n3:cpu:/\n0::/\n");
  machine.group("/memory", "memory.limit_in_bytes", "104857600\n");
  machine.group("/memory", "memory.usage_in_bytes", "52428800\n");
  CHECK(check_memory(50 * kMiB, machine.files));
  CHECK_FALSE(check_memory(51 * kMiB, machine.files));
}

TEST_CASE("a disk without room is refused") {
  const TemporaryFolder folder;
  const auto arena = make(Backing::kDisk, std::uint64_t{1} << 60, folder.path());
  REQUIRE_FALSE(arena);
  CHECK(arena.error().error.code == Code::kNoSpace);
}

TEST_CASE("a ramdisk that is too small is refused and left empty") {
  const TemporaryFolder mount_point;
  if (::mount("tmpfs", mount_point.path().c_str(), "tmpfs", 0, "size=4m") != 0) {
    WARN("SKIPPED: a tmpfs cannot be mounted here (not root)");
    return;
  }
  CHECK(make(Backing::kRamdisk, 8 * kMiB, mount_point.path()).error().error.code == Code::kNoSpace);
  CHECK(make(Backing::kRamdisk, 2 * kMiB, mount_point.path()));
  CHECK(std::filesystem::is_empty(mount_point.path()));
  ::umount(mount_point.path().c_str());
}

TEST_CASE("too small a limit of locked memory is refused unless the process is privileged") {
  CHECK(check_memlock(kMiB, kMiB, false));
  CHECK(check_memlock(kGiB, kMiB, true));
  const auto refused = check_memlock(kGiB, kMiB, false);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.code == Code::kMemlock);
  CHECK(refused.error().text.find("ulimit -l") != std::string::npos);
}

TEST_CASE("taking memory ends at its deadline and when it is cancelled") {
  ManualClock clock;
  ArenaOptions options;
  options.bytes = 8 * kMiB;
  options.deadline = clock.now();
  CHECK(Arena::create(options, clock).error().error.code == Code::kDeadline);
  const std::atomic<bool> cancelled{true};
  options.cancelled = &cancelled;
  CHECK(Arena::create(options, clock).error().error.code == Code::kCancelled);
}

}  // namespace stdchk::benefactor
