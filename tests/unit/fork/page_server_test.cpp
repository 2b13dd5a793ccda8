// Fills memory of this process through a userfaultfd.

#include "fork/process/page_server.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fork/process/watches.h"
#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBlock = PageServer::kBlockBytes;

/// Memory whose missing pages a userfaultfd serves.
class Served {
 public:
  explicit Served(std::uint64_t bytes)
      : bytes_(bytes),
        memory_(static_cast<char*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        faults_(static_cast<int>(
            ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY))) {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
    uffdio_register wanted{};
    wanted.range = {begin(), bytes};
    wanted.mode = UFFDIO_REGISTER_MODE_MISSING;
    works_ = memory_ != MAP_FAILED && ::madvise(memory_, bytes, MADV_NOHUGEPAGE) == 0 && faults_ &&
             ::ioctl(faults_.get(), UFFDIO_API, &api) == 0 &&
             ::ioctl(faults_.get(), UFFDIO_REGISTER, &wanted) == 0;
    if (!works_) WARN("SKIPPED: this process gets no userfaultfd here");
  }
  ~Served() {
    faults_ = Descriptor();  // munmap(2) would wait for a reader of its event
    ::munmap(memory_, bytes_);
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  bool works() const { return works_; }
  char* memory() const { return memory_; }
  std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(memory_); }
  int faults() const { return faults_.get(); }
  Descriptor take_faults() { return std::move(faults_); }
  void moved_to(char* memory, std::uint64_t bytes) {
    memory_ = memory;
    bytes_ = bytes;
  }
  bool has_page(std::uint64_t offset) const {
    unsigned char is_there = 0;
    return ::mincore(memory_ + offset, kPage, &is_there) == 0 && (is_there & 1U) != 0;
  }

 private:
  std::uint64_t bytes_;
  char* memory_;
  Descriptor faults_;
  bool works_ = false;
};

TEST_CASE("pages are put on both sides of a border between two mappings") {
  Served served(16 * kPage);
  if (!served.works()) return;
  // Another flag makes another mapping of the second half.
  REQUIRE(::madvise(served.memory() + 7 * kPage, 9 * kPage, MADV_DONTFORK) == 0);
  const std::string bytes(12 * kPage, 'x');
  put_pages(served.faults(), served.begin(), bytes.size(), bytes.data());
  for (std::uint64_t at = 0; at < 16 * kPage; at += kPage) {
    REQUIRE(served.has_page(at) == (at < bytes.size()));
    if (at < bytes.size()) CHECK(served.memory()[at + 5] == 'x');
  }
}

TEST_CASE("zeros fill what is missing, and pages that are there stay") {
  Served served(16 * kPage);
  if (!served.works()) return;
  REQUIRE(::madvise(served.memory() + 7 * kPage, 9 * kPage, MADV_DONTFORK) == 0);
  const std::string bytes(kPage, 'x');
  put_pages(served.faults(), served.begin() + 3 * kPage, kPage, bytes.data());
  put_pages(served.faults(), served.begin(), 16 * kPage, nullptr);
  for (std::uint64_t at = 0; at < 16 * kPage; at += kPage) {
    REQUIRE(served.has_page(at));
    CHECK(served.memory()[at] == (at == 3 * kPage ? 'x' : '\0'));
  }
}

TEST_CASE("a mapping with holes can be moved and grown, and keeps its bytes and its zeros") {
  constexpr std::uint64_t kBytes = 8 * kBlock;
  Served served(kBytes);
  if (!served.works()) return;
  const std::uint64_t source = served.begin();
  Watches watches;
  std::vector<std::uint64_t> wanted;
  // Blocks 2 and 6 have pages in the parent.
  std::vector<PageServer::Segment> segments;
  for (const std::uint64_t block : {2U, 6U}) {
    const std::uint64_t begin = source + block * kBlock;
    segments.push_back({begin, begin + kBlock, block * kBlock});
  }
  char* grown = nullptr;
  std::vector<char> seen;  // the main thread alone uses Catch2's macros
  {
    PageServer pages(watches, segments,
                     [&](std::uint64_t address, std::uint64_t) { wanted.push_back(address); });
    pages.serve(served.take_faults());
    std::atomic<bool> has_ended{false};
    std::thread clone([&] {
      const auto look = [&](const char* memory, std::uint64_t offset) {
        const char byte = *static_cast<const volatile char*>(memory + offset);
        seen.push_back(byte);
      };
      look(served.memory(), kBlock);
      look(served.memory(), 2 * kBlock);
      void* moved = ::mremap(served.memory(), kBytes, 16 * kBytes, MREMAP_MAYMOVE);
      if (moved != MAP_FAILED) {
        grown = static_cast<char*>(moved);
        for (const std::uint64_t block : {1U, 2U, 6U, 7U, 100U}) look(grown, block * kBlock);
      }
      has_ended = true;
    });
    while (!has_ended) {
      watches.poll();
      for (const std::uint64_t address : std::exchange(wanted, {})) {
        pages.on_block(address, std::string(kBlock, 'x'));
      }
    }
    clone.join();
  }
  REQUIRE(grown != nullptr);
  served.moved_to(grown, 16 * kBytes);
  CHECK(seen == std::vector<char>{'\0', 'x', '\0', 'x', 'x', '\0', '\0'});
}

}  // namespace
}  // namespace stdchk::fork
