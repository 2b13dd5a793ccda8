#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk {

/// A StripeCoder computes blocks of a stripe from other blocks: parity from data, or lost blocks
/// from the remaining ones. The code is systematic and maximum distance separable: any `data` of
/// the data + parity blocks determine all others.
///
/// Blocks are numbered: data from 0 on, then parity. With d(j) the data and arithmetic in GF(2^8)
/// modulo x^8 + x^4 + x^3 + x^2 + 1:
///
/// | parity blocks | block data + i is                                                          |
/// |---------------|----------------------------------------------------------------------------|
/// | 1             | the sum of all d(j): XOR                                                   |
/// | 2             | P, the sum of d(j), and Q, the sum of 2^j d(j) (Anvin, "The mathematics of |
/// |               | RAID-6")                                                                   |
/// | 3, 4          | the sum of d(j) / (data + i + j), + without carry: a Cauchy matrix (Bloemer|
/// |               | et al., 1995)                                                              |
///
/// These numbers are fixed, because stripes are stored with them. docs/internals/formats.md has an
/// example.
///
/// Threads: any thread may call run(), which does not change the coder.
class StripeCoder {
 public:
  /// Step in bytes: block lengths and addresses are multiples of it.
  static constexpr std::size_t kStep = 64;
  static constexpr std::size_t whole_steps(std::size_t bytes) {
    return (bytes + kStep - 1) / kStep * kStep;
  }

  /// Prepares to make the blocks `wanted` from the blocks `have`, which are as many as
  /// data blocks. Fails with kInvalidArgument when a number occurs twice or is too large,
  /// or the counts do not fit.
  static Result<StripeCoder> create(std::uint32_t data, std::uint32_t parity,
                                    std::vector<std::uint8_t> have,
                                    std::vector<std::uint8_t> wanted);
  /// Takes the blocks in the order of create(); `bytes` is a multiple of kStep.
  void run(std::span<std::byte* const> have, std::span<std::byte* const> wanted,
           std::size_t bytes) const;

 private:
  enum class Way : std::uint8_t { kCopy, kXor, kPQ, kTables };
  Way way_ = Way::kTables;
  std::uint32_t have_ = 0;
  std::uint32_t wanted_ = 0;
  std::vector<std::uint8_t> tables_;
};

}  // namespace stdchk
