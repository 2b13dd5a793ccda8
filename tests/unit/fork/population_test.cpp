#include "fork/process/population.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "fork/process/process_handle.h"
#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

using Parts = std::vector<MemoryPart>;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBlock = 64 * 1024;
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63U;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62U;

/// Supplies a pagemap in which these pages have these entries.
ReadPagemap pagemap_of(const std::map<std::uint64_t, std::uint64_t>& pages) {
  return [&pages](std::uint64_t address, std::span<std::uint64_t> entries) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto found = pages.find(address + i * kPage);
      entries[i] = found == pages.end() ? 0 : found->second;
    }
    return true;
  };
}

TEST_CASE("memory without pages is a hole, in whole blocks") {
  const std::map<std::uint64_t, std::uint64_t> pages{
      {3 * kBlock + kPage, kPresent}, {4 * kBlock, kSwapped}, {9 * kBlock - kPage, kPresent}};
  const auto found = find_population({{kBlock, 10 * kBlock}}, pagemap_of(pages));
  CHECK(found.parts == Parts{{3 * kBlock, 5 * kBlock}, {8 * kBlock, 9 * kBlock}});
  CHECK(found.holes ==
        Parts{{kBlock, 3 * kBlock}, {5 * kBlock, 8 * kBlock}, {9 * kBlock, 10 * kBlock}});
}

TEST_CASE("a range that begins and ends within blocks keeps its ends") {
  const std::map<std::uint64_t, std::uint64_t> pages{{kBlock + 5 * kPage, kPresent}};
  const MemoryPart range{kBlock + 2 * kPage, 3 * kBlock + kPage};
  const auto found = find_population({range}, pagemap_of(pages));
  CHECK(found.parts == Parts{{range.begin, 2 * kBlock}});
  CHECK(found.holes == Parts{{2 * kBlock, range.end}});
}

TEST_CASE("parts and holes of several long ranges cover them, and nothing else") {
  const std::uint64_t far = std::uint64_t{1} << 40U;
  std::map<std::uint64_t, std::uint64_t> pages;
  for (std::uint64_t at = 0; at < 600 * kBlock; at += 200 * kBlock) pages[far + at] = kPresent;
  const Parts ranges{{kBlock, 2 * kBlock}, {far, far + 600 * kBlock}};
  const auto found = find_population(ranges, pagemap_of(pages));
  CHECK(found.parts.size() == 3);
  CHECK(found.holes.size() == 4);
  std::uint64_t bytes = 0;
  for (const auto* list : {&found.parts, &found.holes}) {
    for (const MemoryPart& part : *list) bytes += part.end - part.begin;
  }
  CHECK(bytes == 601 * kBlock);
}

TEST_CASE("no part reaches over the border of two mappings, however small the holes are") {
  // The border lies within a block.
  const std::uint64_t border = 5 * kBlock + 3 * kPage;
  const std::uint64_t end = 9 * kBlock;
  std::map<std::uint64_t, std::uint64_t> pages;
  for (std::uint64_t at = 4 * kBlock; at < 7 * kBlock; at += kPage) pages[at] = kPresent;
  const Parts ranges{{kBlock, border}, {border, end}, {end, 10 * kBlock}};
  const auto found = find_population(ranges, pagemap_of(pages));
  CHECK(found.parts == Parts{{4 * kBlock, border}, {border, 7 * kBlock}});
  CHECK(found.holes == Parts{{kBlock, 4 * kBlock}, {7 * kBlock, end}, {end, 10 * kBlock}});
  const auto unknown =
      find_population(ranges, [](std::uint64_t, std::span<std::uint64_t>) { return false; });
  CHECK(unknown.parts == ranges);
}

TEST_CASE("beyond 64 GiB in all, no pagemap is read, and memory counts as populated") {
  constexpr std::uint64_t kHalf = Population::kBytesMax / 2;
  const Parts ranges{
      {0, kHalf + kBlock}, {kHalf + kBlock, 2 * kHalf + kBlock}, {3 * kHalf, 3 * kHalf + kBlock}};
  std::uint64_t bytes_read = 0;
  const auto found = find_population(ranges, [&](std::uint64_t, std::span<std::uint64_t> entries) {
    bytes_read += entries.size() * kPage;
    return true;
  });
  CHECK(bytes_read == kHalf + 2 * kBlock);
  CHECK(found.parts == Parts{ranges[1]});
  CHECK(found.holes == Parts{ranges[0], ranges[2]});
}

TEST_CASE("of ranges that another process has sent, those that no process can have are dropped") {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 47U;
  const Parts sent{{8 * kPage, 9 * kPage},       {kPage, 3 * kPage},
                   {2 * kPage, 5 * kPage},       {4 * kPage, 4 * kPage},
                   {6 * kPage, 5 * kPage},       {6 * kPage, 7 * kPage + 1},
                   {10 * kPage + 8, 11 * kPage}, {kTop - kPage, kTop + kPage},
                   {3 * kPage, 4 * kPage},       {kTop - kPage, kTop}};
  CHECK(valid_ranges(sent) == Parts{{kPage, 3 * kPage},
                                    {3 * kPage, 4 * kPage},
                                    {8 * kPage, 9 * kPage},
                                    {kTop - kPage, kTop}});
}

TEST_CASE("memory whose pagemap cannot be read counts as populated") {
  const Parts ranges{{kBlock, 9 * kBlock}};
  const auto found =
      find_population(ranges, [](std::uint64_t, std::span<std::uint64_t>) { return false; });
  CHECK(found.parts == ranges);
  CHECK(found.holes.empty());
}

TEST_CASE("small holes count as populated when there are too many parts") {
  // Every second block has a page, and there is one large hole.
  const std::uint64_t dense = 4 * Population::kPartsMax * kBlock;
  std::map<std::uint64_t, std::uint64_t> pages;
  for (std::uint64_t at = kBlock; at < dense; at += 2 * kBlock) pages[at] = kPresent;
  const std::uint64_t end = dense + 1000 * kBlock;
  const auto found = find_population({{kBlock, end}}, pagemap_of(pages));
  CHECK(found.parts.size() <= Population::kPartsMax);
  REQUIRE(found.holes.size() == 1);
  CHECK(found.holes.front() == MemoryPart{dense, end});
}

TEST_CASE("the pagemap of a process shows which memory it has touched") {
  constexpr std::size_t kBytes = 64 * kBlock;
  void* mapped =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  // Huge pages would fill the blocks between. A kernel without them refuses the advice.
  static_cast<void>(::madvise(mapped, kBytes, MADV_NOHUGEPAGE));
  const auto begin = reinterpret_cast<std::uint64_t>(mapped);
  static_cast<volatile char*>(mapped)[40 * kBlock] = 1;
  const Descriptor pagemap = ProcessHandle(::getpid()).open_pagemap();
  REQUIRE(pagemap);
  const auto found = find_population(
      {{begin, begin + kBytes}}, [&](std::uint64_t address, std::span<std::uint64_t> entries) {
        const auto offset = static_cast<off_t>(address / kPage * sizeof(std::uint64_t));
        return ::pread(pagemap.get(), entries.data(), entries.size_bytes(), offset) ==
               static_cast<ssize_t>(entries.size_bytes());
      });
  REQUIRE(found.parts.size() == 1);
  CHECK(found.parts.front().begin <= begin + 40 * kBlock);
  CHECK(begin + 40 * kBlock < found.parts.front().end);
  CHECK(found.parts.front().end - found.parts.front().begin <= kBlock);
  ::munmap(mapped, kBytes);
}

}  // namespace
}  // namespace stdchk::fork
