// Measures parity (core/chunk/erasure.h) on one core, in GB of data per second of processor time.
// The ceiling is ISA-L's own loop over the same blocks. Measures making parity, rebuilding a lost
// block, and all computation of a benefactor for a stripe with the checksums of all blocks. For one
// and two parity blocks, also compares ISA-L's general code with its simple code in the processor's
// cache.
#include <fmt/core.h>
#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "bench/measuring.h"
#include "core/base/limits.h"
#include "core/chunk/erasure.h"
#include "core/chunk/naming.h"

using namespace stdchk;

namespace {

constexpr std::size_t kBlockBytes = 512 * limits::kKiB;
constexpr std::size_t kStripes = 8;  // more than the cache holds
constexpr std::size_t kHotBytes = 16 * limits::kKiB;
constexpr int kHotPasses = 2000;
constexpr int kRounds = 7;
constexpr int kPasses = 4;

struct Shape {
  std::uint32_t data;
  std::uint32_t parity;
};
constexpr Shape kShapes[] = {{4, 1}, {8, 1}, {4, 2}, {8, 2}, {8, 3}, {8, 4}};

using Blocks = std::vector<std::byte*>;

/// ISA-L as its users call it, without our code between.
class RawLoop {
 public:
  explicit RawLoop(Shape shape) : shape_(shape), matrix_((shape.data + shape.parity) * shape.data) {
    gf_gen_cauchy1_matrix(matrix_.data(), static_cast<int>(shape.data + shape.parity),
                          static_cast<int>(shape.data));
    tables_.resize(32UL * shape.data * shape.parity);
    ec_init_tables(static_cast<int>(shape.data), static_cast<int>(shape.parity),
                   matrix_.data() + shape.data * shape.data, tables_.data());
  }
  void run(const Blocks& blocks, int bytes = kBlockBytes) {
    const int count = static_cast<int>(blocks.size());
    auto* const all = const_cast<std::byte**>(blocks.data());
    if (shape_.parity == 1) {
      xor_gen(count, bytes, reinterpret_cast<void**>(all));
    } else if (shape_.parity == 2) {
      pq_gen(count, bytes, reinterpret_cast<void**>(all));
    } else {
      run_general(blocks, bytes);
    }
  }
  void run_general(const Blocks& blocks, int bytes) {
    auto* const all = const_cast<std::byte**>(blocks.data());
    auto** const from = reinterpret_cast<unsigned char**>(all);
    ec_encode_data(bytes, static_cast<int>(shape_.data), static_cast<int>(shape_.parity),
                   tables_.data(), from, from + shape_.data);
  }

 private:
  Shape shape_;
  std::vector<unsigned char> matrix_;
  std::vector<unsigned char> tables_;
};

std::vector<std::uint8_t> numbers(std::uint32_t first, std::uint32_t end) {
  std::vector<std::uint8_t> out(end - first);
  std::iota(out.begin(), out.end(), static_cast<std::uint8_t>(first));
  return out;
}

void measure(Shape shape) {
  const std::uint32_t all = shape.data + shape.parity;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(4096, kStripes * all * kBlockBytes)), &std::free);
  bench::fill_random({memory.get(), kStripes * all * kBlockBytes}, 7);
  std::vector<Blocks> stripes(kStripes);
  for (std::size_t i = 0; i < kStripes * all; ++i) {
    stripes[i / all].push_back(memory.get() + i * kBlockBytes);
  }
  const StripeCoder make = *StripeCoder::create(shape.data, shape.parity, numbers(0, shape.data),
                                                numbers(shape.data, all));
  // Data block 0 is lost; the first parity block replaces it.
  const StripeCoder again =
      *StripeCoder::create(shape.data, shape.parity, numbers(1, shape.data + 1), {0});
  RawLoop raw(shape);
  const std::size_t bytes = kPasses * kStripes * shape.data * kBlockBytes;
  const auto each = [&](const std::function<void(const Blocks&)>& work) {
    return bench::thread_rate(bytes, [&] {
      for (int pass = 0; pass < kPasses; ++pass) {
        for (const Blocks& blocks : stripes) work(blocks);
      }
    });
  };
  const auto have = [&](const Blocks& blocks, std::uint32_t first) {
    return std::span<std::byte* const>(blocks).subspan(first, shape.data);
  };
  const auto parity = [&](const Blocks& blocks) {
    return std::span<std::byte* const>(blocks).subspan(shape.data);
  };
  Blocks hot;
  for (std::size_t i = 0; i < all; ++i) hot.push_back(memory.get() + i * kHotBytes);
  const auto often = [&](const std::function<void()>& work) {
    return bench::thread_rate(kHotPasses * shape.data * kHotBytes, [&] {
      for (int pass = 0; pass < kHotPasses; ++pass) work();
    });
  };
  nlohmann::json rates;
  std::uint32_t sum = 0;
  const double taken = bench::wall_seconds();
  for (int round = 0; round < kRounds; ++round) {
    rates["raw"].push_back(each([&](const Blocks& blocks) { raw.run(blocks); }));
    rates["made"].push_back(each(
        [&](const Blocks& blocks) { make.run(have(blocks, 0), parity(blocks), kBlockBytes); }));
    rates["made_and_checked"].push_back(each([&](const Blocks& blocks) {
      for (std::byte* const block : have(blocks, 0)) sum ^= crc32c(0, {block, kBlockBytes});
      make.run(have(blocks, 0), parity(blocks), kBlockBytes);
      for (std::byte* const block : parity(blocks)) sum ^= crc32c(0, {block, kBlockBytes});
    }));
    rates["made_again"].push_back(each([&](const Blocks& blocks) {
      again.run(have(blocks, 1), std::span<std::byte* const>(blocks).first(1), kBlockBytes);
    }));
    if (shape.parity > 2) continue;
    rates["simple_hot"].push_back(often([&] { raw.run(hot, kHotBytes); }));
    rates["general_hot"].push_back(often([&] { raw.run_general(hot, kHotBytes); }));
  }
  const nlohmann::json line = {{"data", shape.data},
                               {"parity", shape.parity},
                               {"gb_per_s", rates},
                               {"taken", taken},
                               {"sum", sum}};
  fmt::print("{}\n", line.dump());
}

}  // namespace

int main() {
  for (const Shape shape : kShapes) measure(shape);
  return 0;
}
