#include "core/chunk/chunker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "tests/support/catch.h"

using namespace stdchk;

namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(size + 8);
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = prng.next();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

/// Imitates a program's memory: pages of small numbers, of pointers, of text, of zeros, of floats.
std::vector<std::byte> memory_like(std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(size);
  for (std::size_t page = 0; page < size; page += 4096) {
    const std::uint64_t kind = prng.below(5);
    for (std::size_t i = page; i + 8 <= std::min(size, page + 4096); i += 8) {
      std::uint64_t word = 0;
      if (kind == 1) word = prng.below(1000);
      if (kind == 2) word = 0x00007F3A00000000 + prng.below(1 << 24) * 16;
      if (kind == 3) word = 0x2020202020202020 + prng.below(1 << 30) % 0x3F3F3F3F;
      if (kind == 4) word = 0x3FF0000000000000 | prng.next() >> 12;
      std::memcpy(bytes.data() + i, &word, 8);
    }
  }
  return bytes;
}

std::vector<std::uint64_t> ends_of(ByteSpan bytes, ChunkSizes sizes, BoundaryEngine engine) {
  Chunker chunker(sizes, engine);
  std::vector<std::uint64_t> ends;
  chunker.push(bytes, ends);
  return ends;
}

/// The share of `next` whose chunks also occur in `previous`.
double found_again(ByteSpan previous, ByteSpan next, ChunkSizes sizes) {
  const auto chunks = [&](ByteSpan bytes) {
    auto ends = ends_of(bytes, sizes, best_boundary_engine());
    ends.push_back(bytes.size());
    std::vector<ByteSpan> all;
    std::uint64_t start = 0;
    for (const std::uint64_t end : ends) {
      all.push_back(bytes.subspan(start, end - start));
      start = end;
    }
    return all;
  };
  std::set<std::string> known;
  for (const ByteSpan chunk : chunks(previous)) known.insert(to_hex(name_chunk(chunk)));
  std::size_t found = 0;
  for (const ByteSpan chunk : chunks(next)) {
    if (known.contains(to_hex(name_chunk(chunk)))) found += chunk.size();
  }
  return static_cast<double>(found) / static_cast<double>(next.size());
}

}  // namespace

TEST_CASE("every engine finds the same boundaries") {
  const ChunkSizes sizes = ChunkSizes::around(4096);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto bytes =
        seed % 2 == 0 ? memory_like(limits::kMiB, seed) : random_bytes(limits::kMiB, seed);
    const BoundaryFinder scalar(sizes, BoundaryEngine::kScalar);
    for (const BoundaryEngine engine : boundary_engines()) {
      INFO(name_of(engine) << ", seed " << seed);
      // Tests every start within a vector, and every number of left-over positions.
      const BoundaryFinder finder(sizes, engine);
      for (std::size_t skip = 0; skip < 80; ++skip) {
        const ByteSpan part = ByteSpan(bytes).subspan(skip, 40000 + 3 * skip);
        REQUIRE(find_boundaries(finder, part) == find_boundaries(scalar, part));
      }
      REQUIRE(find_boundaries(finder, bytes) == find_boundaries(scalar, bytes));
      CHECK(ends_of(bytes, sizes, engine) == ends_of(bytes, sizes, BoundaryEngine::kScalar));
    }
  }
}

TEST_CASE("nothing behind the bytes is read") {
  constexpr std::size_t kPages = 3 * 4096;
  auto* const memory = static_cast<std::byte*>(
      ::mmap(nullptr, kPages + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(::mprotect(memory + kPages, 4096, PROT_NONE) == 0);
  const auto bytes = random_bytes(kPages, 9);
  std::memcpy(memory, bytes.data(), kPages);
  for (const BoundaryEngine engine : boundary_engines()) {
    const BoundaryFinder finder(ChunkSizes::around(4096), engine);
    for (std::size_t size = 32; size < 400; ++size) {
      const ByteSpan part(memory + kPages - size, size);
      const BoundaryFinder scalar(ChunkSizes::around(4096), BoundaryEngine::kScalar);
      REQUIRE(find_boundaries(finder, part) == find_boundaries(scalar, part));
    }
    CHECK(ends_of({memory, kPages}, ChunkSizes::around(4096), engine) ==
          ends_of(bytes, ChunkSizes::around(4096), engine));
  }
  ::munmap(memory, kPages + 4096);
}

TEST_CASE("the boundaries are those that are documented") {
  // Computes the boundaries byte by byte from the definition in core/chunk/chunker.h.
  const auto load = [](const std::byte* at, int count) {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
    return value;
  };
  const auto bytes = random_bytes(4 * limits::kMiB, 5);
  const auto found = find_boundaries(BoundaryFinder(ChunkSizes{64, 64 + 2048, 16384}), bytes);
  // With the smallest spread, the filter alone decides.
  std::vector<std::uint32_t> expected;
  for (std::uint32_t p = 32; p <= bytes.size(); ++p) {
    const std::byte* end = bytes.data() + p;
    const std::uint64_t word = load(end - 4, 4) ^ load(end - 13, 4) ^ load(end - 22, 4);
    const std::uint64_t sum = 0x9E37 + (word & 0xFFFF) * 0x6A4F + (word >> 16) * 0xA2C5;
    if (sum % 65536 < 32) expected.push_back(p);
  }
  CHECK(found == expected);
}

TEST_CASE("images are cut where they always were") {
  // Fixed expectations: if a later version cut elsewhere, it would share nothing with stored
  // images.
  const auto bytes = random_bytes(4 * limits::kMiB, 6);
  const auto ends = ends_of(bytes, ChunkSizes::around(64 * limits::kKiB), best_boundary_engine());
  REQUIRE(ends.size() > 8);
  CHECK(std::vector(ends.begin(), ends.begin() + 8) ==
        std::vector<std::uint64_t>{60358, 187802, 214623, 379354, 414456, 445029, 511758, 573387});
}

TEST_CASE("where a stream is cut does not depend on how it was handed over") {
  const ChunkSizes sizes = ChunkSizes::around(8192);
  const auto bytes = memory_like(2 * limits::kMiB, 7);
  const auto whole = ends_of(bytes, sizes, best_boundary_engine());
  CHECK(whole.size() > 100);
  const BoundaryFinder finder(sizes);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Prng prng(seed);
    Chunker chunker(sizes);
    Chunker prepared(sizes);
    std::vector<std::uint64_t> ends;
    std::vector<std::uint64_t> prepared_ends;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t most = seed < 4 ? 100 : 100000;
      const std::size_t length =
          std::min<std::size_t>(bytes.size() - at, prng.below(most));  // possibly zero bytes
      const ByteSpan part = ByteSpan(bytes).subspan(at, length);
      chunker.push(part, ends);
      prepared.push(part, find_boundaries(finder, part), prepared_ends);
      at += length;
    }
    CHECK(ends == whole);
    CHECK(prepared_ends == whole);
    CHECK(chunker.position() == bytes.size());
    CHECK(chunker.chunk_start() == whole.back());
  }
}

TEST_CASE("chunks keep to their sizes, and random bytes have the mean") {
  for (const std::uint32_t mean : {16384U, 65536U, 262144U}) {
    const ChunkSizes sizes = ChunkSizes::around(mean);
    const auto bytes = random_bytes(std::size_t{512} * mean, mean);
    const auto ends = ends_of(bytes, sizes, best_boundary_engine());
    std::uint64_t start = 0;
    std::size_t forced = 0;
    for (const std::uint64_t end : ends) {
      CHECK(end - start >= sizes.min);
      CHECK(end - start <= sizes.max);
      if (end - start == sizes.max) ++forced;
      start = end;
    }
    const double measured = static_cast<double>(ends.back()) / static_cast<double>(ends.size());
    CHECK(measured > 0.85 * mean);
    CHECK(measured < 1.15 * mean);
    CHECK(forced < ends.size() / 25);
  }
}

TEST_CASE("a run of one byte is cut by the maximum only") {
  const ChunkSizes sizes = ChunkSizes::around(16384);
  for (int value = 0; value < 256; ++value) {
    const std::vector<std::byte> bytes(4 * sizes.max + 1, static_cast<std::byte>(value));
    const auto ends = ends_of(bytes, sizes, best_boundary_engine());
    REQUIRE(ends.size() == 4);
    for (std::size_t i = 0; i < ends.size(); ++i) REQUIRE(ends[i] == (i + 1) * sizes.max);
  }
}

TEST_CASE("98 % of an image are found again after an insertion in its middle") {
  const ChunkSizes sizes = ChunkSizes::around(65536);
  for (const bool is_memory : {false, true}) {
    const std::size_t size = 32 * limits::kMiB;
    const auto image = is_memory ? memory_like(size, 11) : random_bytes(size, 11);
    for (const std::size_t inserted : {std::size_t{1}, std::size_t{300000}}) {
      auto changed = image;
      const auto more = random_bytes(inserted, 12);
      changed.insert(changed.begin() + size / 2, more.begin(), more.end());
      const double found = found_again(image, changed, sizes);
      INFO((is_memory ? "memory" : "random") << ", " << inserted << " bytes: " << found);
      CHECK(found * static_cast<double>(changed.size()) >= 0.98 * static_cast<double>(size));
    }
  }
}

TEST_CASE("numbers of eight bytes, small ones too, have boundaries") {
  // A window that compared single numbers would see too few distinct values.
  const ChunkSizes sizes = ChunkSizes::around(16384);
  Prng prng(21);
  for (const std::uint64_t below : {64ULL, 1000ULL, 1ULL << 20, 1ULL << 40}) {
    std::vector<std::byte> bytes(8 * limits::kMiB);
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      const std::uint64_t word = prng.below(below);
      std::memcpy(bytes.data() + i, &word, 8);
    }
    const auto ends = ends_of(bytes, sizes, best_boundary_engine());
    const double mean = static_cast<double>(ends.back()) / static_cast<double>(ends.size());
    INFO("below " << below << ": mean " << mean);
    CHECK(mean < 2 * sizes.mean);
    CHECK(mean > sizes.mean / 2);
  }
}
