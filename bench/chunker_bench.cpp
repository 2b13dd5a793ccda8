// Measures the content-defined chunker (core/chunk/chunker.h) on one core, at mean chunk lengths of
// 64 KiB and 1 MiB. Each engine runs on random bytes, on memory-like pages, on zeros, and on an
// image from a file. The ceiling is reading the same memory. Also measures how much the chunker
// finds again after an insertion in the middle.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/chunk/chunker.h"
#include "core/chunk/naming.h"
#include "core/runtime/options.h"

using namespace stdchk;

namespace {

constexpr std::size_t kBytes = 256 * limits::kMiB;
constexpr int kRounds = 7;
constexpr std::uint32_t kMeans[] = {64 * limits::kKiB, limits::kMiB};

/// Imitates a program's memory: pages of small numbers, pointers, text, zeros and floats.
void fill_memory_like(MutableByteSpan bytes, std::uint64_t seed) {
  Prng prng(seed);
  for (std::size_t page = 0; page < bytes.size(); page += 4096) {
    const std::uint64_t kind = prng.below(5);
    for (std::size_t i = page; i < page + 4096; i += 8) {
      std::uint64_t word = 0;
      if (kind == 1) word = prng.below(1000);
      if (kind == 2) word = 0x00007F3A00000000 + prng.below(1 << 24) * 16;
      if (kind == 3) word = 0x6020206574206120 + prng.below(1 << 20);
      if (kind == 4) word = 0x3FF0000000000000 | prng.next() >> 12;
      std::memcpy(bytes.data() + i, &word, 8);
    }
  }
}

std::vector<ByteSpan> chunks_of(ByteSpan bytes, std::uint32_t mean) {
  Chunker chunker(ChunkSizes::around(mean));
  std::vector<std::uint64_t> ends;
  chunker.push(bytes, ends);
  if (chunker.chunk_start() < bytes.size()) ends.push_back(bytes.size());
  std::vector<ByteSpan> chunks;
  std::uint64_t start = 0;
  for (const std::uint64_t end : ends) {
    chunks.push_back(bytes.subspan(start, end - start));
    start = end;
  }
  return chunks;
}

/// The share of the image's bytes in chunks that the changed image also has.
double found_again(ByteSpan image, std::size_t inserted, std::uint32_t mean) {
  Namer namer;
  std::set<std::string> known;
  for (const ByteSpan chunk : chunks_of(image, mean)) known.insert(to_hex(namer.name(chunk)));
  const std::size_t half = image.size() / 2;
  std::vector<std::byte> changed(image.size() + inserted);
  std::copy_n(image.begin(), half, changed.begin());
  bench::fill_random(MutableByteSpan(changed).subspan(half, inserted), 99);
  std::copy(image.begin() + static_cast<std::ptrdiff_t>(half), image.end(),
            changed.begin() + static_cast<std::ptrdiff_t>(half + inserted));
  std::size_t found = 0;
  for (const ByteSpan chunk : chunks_of(changed, mean)) {
    if (known.contains(to_hex(namer.name(chunk)))) found += chunk.size();
  }
  return static_cast<double>(found) / static_cast<double>(image.size());
}

nlohmann::json measure(ByteSpan bytes, std::uint32_t mean) {
  const auto engines = boundary_engines();
  nlohmann::json rates = {{"read", nlohmann::json::array()}};
  for (int round = 0; round <= kRounds; ++round) {
    std::uint64_t sum = 0;
    const double read = bench::thread_rate(bytes.size(), [&] { sum = bench::sum_words(bytes); });
    if (sum == 1) fmt::print(stderr, "\n");  // uses the sum, so that the loop is not removed
    if (round > 0) rates["read"].push_back(read);
    for (const BoundaryEngine engine : engines) {
      // The scalar engine is too slow for all bytes in each round.
      const ByteSpan part =
          engine == BoundaryEngine::kScalar ? bytes.first(bytes.size() / 8) : bytes;
      const double one = bench::thread_rate(part.size(), [&] {
        Chunker chunker(ChunkSizes::around(mean), engine);
        std::vector<std::uint64_t> ends;
        chunker.push(part, ends);
      });
      if (round > 0) rates[std::string(name_of(engine))].push_back(one);
    }
  }
  return rates;
}

}  // namespace

int main(int argc, char** argv) {
  std::string image;
  Options options("chunker-bench", "Measures the content-defined chunker beside reading.");
  options.text("--image", image, "FILE",
               "a file that is measured, too: a memory image of a program");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  const MutableByteSpan memory = bench::random_memory(kBytes, 1);
  const double started = bench::wall_seconds();
  for (const std::string_view content :
       {"random bytes", "memory-like pages", "zeros", "an image"}) {
    MutableByteSpan bytes = memory;
    if (content == "memory-like pages") fill_memory_like(bytes, 2);
    if (content == "zeros") std::memset(bytes.data(), 0, bytes.size());
    if (content == "an image") {
      if (image.empty()) continue;
      std::ifstream file(image, std::ios::binary);
      file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      bytes = bytes.first(static_cast<std::size_t>(file.gcount()));
      if (bytes.size() < kBytes / 4) {
        fmt::print(stderr, "{}: {} bytes are too few, or cannot be read\n", image, bytes.size());
        return 1;
      }
    }
    for (const std::uint32_t mean : kMeans) {
      nlohmann::json line = {{"content", content},
                             {"mean_bytes", mean},
                             {"taken", started},
                             {"gb_per_s", measure(bytes, mean)}};
      for (const std::size_t inserted : {std::size_t{1}, std::size_t{300000}}) {
        line["found_again"][std::to_string(inserted)] = found_again(bytes, inserted, mean);
      }
      fmt::print("{}\n", line.dump());
    }
  }
  return 0;
}
