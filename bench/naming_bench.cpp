// Measures what checking and naming a chunk costs on one core: CRC32C, SHA-256 names by OpenSSL and
// by the engine that Namer chose, each as a share of its ceiling, reading the same memory in the
// same run. The chunks are random and together larger than the caches.

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/measuring.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/naming.h"

using namespace stdchk;

namespace {

constexpr std::size_t kTotalBytes = 256 * limits::kMiB;
constexpr int kRounds = 5;

/// Of this thread, so that a busy machine counts less.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct Measured {
  double minimum, median, maximum;  // GB/s
};

/// Runs `work` over every chunk of `bytes`; the first round only warms up.
Measured measure(ByteSpan bytes, std::size_t chunk_bytes,
                 const std::function<void(ByteSpan)>& work) {
  std::vector<double> rates;
  for (int round = 0; round <= kRounds; ++round) {
    const double start = cpu_seconds();
    for (std::size_t at = 0; at < bytes.size(); at += chunk_bytes) {
      work(bytes.subspan(at, chunk_bytes));
    }
    const double took = cpu_seconds() - start;
    if (round > 0) rates.push_back(static_cast<double>(bytes.size()) / took / 1e9);
  }
  std::sort(rates.begin(), rates.end());
  return {rates.front(), rates[rates.size() / 2], rates.back()};
}

void print(std::string_view what, const Measured& rate, const Measured& ceiling) {
  fmt::print("{:<28} {:6.2f} {:6.2f} {:6.2f}   {:5.1f} %\n", what, rate.minimum, rate.median,
             rate.maximum, 100 * rate.median / ceiling.median);
}

}  // namespace

int main() {
  std::vector<std::byte> storage(kTotalBytes + 64);
  // Aligned for the vectors that read it.
  void* aligned = storage.data();
  std::size_t space = storage.size();
  const std::span memory(static_cast<std::byte*>(std::align(64, kTotalBytes, aligned, space)),
                         kTotalBytes);
  Prng prng(1);
  for (std::size_t i = 0; i < memory.size(); i += 8) {
    const std::uint64_t word = prng.next();
    __builtin_memcpy(memory.data() + i, &word, 8);
  }
  Namer namer;
  std::uint64_t sink = 0;
  fmt::print("GB per CPU second           minimum median maximum   of reading\n");
  for (const std::size_t chunk : {64 * limits::kKiB, limits::kMiB, 4 * limits::kMiB}) {
    fmt::print("chunks of {} KiB\n", chunk / limits::kKiB);
    const Measured read = measure(memory, chunk, [&](ByteSpan b) { sink += bench::sum_words(b); });
    print("  read memory", read, read);
    print("  crc32c", measure(memory, chunk, [&](ByteSpan b) { sink += crc32c(0, b); }), read);
    const auto add_name = [&](const ChunkName& name) {
      sink += std::to_integer<std::uint64_t>(name.bytes[0]);
    };
    const Measured one = measure(memory, chunk, [&](ByteSpan b) { add_name(name_chunk(b)); });
    print("  name, OpenSSL", one, read);
    const Measured many = measure(memory, chunk, [&](ByteSpan b) { add_name(namer.name(b)); });
    print(fmt::format("  name, {}", namer.engine()), many, read);
    fmt::print("  {} / OpenSSL: {:.2f}\n", namer.engine(), many.median / one.median);
  }
  return sink == 0 ? 1 : 0;  // uses the results
}
