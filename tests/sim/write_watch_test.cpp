#include "tests/support/write_watch.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::sim {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

struct Memory {
  Memory() {
    void* const at =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    bytes = {static_cast<std::byte*>(at), kBytes};
  }
  ~Memory() { ::munmap(bytes.data(), bytes.size()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  MutableByteSpan bytes;
};

TEST_CASE("a write into a part changes its stamp, and a write elsewhere does not") {
  Memory memory;
  WriteWatch watch(memory.bytes);
  const std::uint64_t before = watch.stamp(100000, 70000);
  if (watch.stamp(100000, 70000) != before) return;  // under a sanitizer it watches nothing
  memory.bytes[500000] = std::byte{1};
  CHECK(watch.stamp(100000, 70000) == before);
  memory.bytes[169999] = std::byte{1};
  const std::uint64_t after = watch.stamp(100000, 70000);
  CHECK(after != before);
  CHECK(watch.stamp(100000, 70000) == after);
  std::memset(memory.bytes.data(), 7, memory.bytes.size());
  CHECK(memory.bytes[kBytes - 1] == std::byte{7});
  CHECK(watch.stamp(100000, 70000) != after);
}

TEST_CASE("memory can be written when its watch has ended") {
  Memory memory;
  {
    WriteWatch watch(memory.bytes);
    watch.stamp(0, kBytes);
  }
  memory.bytes[5] = std::byte{1};
  CHECK(memory.bytes[5] == std::byte{1});
}

}  // namespace
}  // namespace stdchk::sim
