#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/types.h"

namespace stdchk {

/// A StripeCoder makes blocks of a stripe from others of it: parity from data, or what was lost
/// from what is left. The code is systematic and maximum distance separable: any `data` blocks of
/// data + parity give all others.
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
/// The numbers are stored for as long as the stripe: docs/formats.md has an example.
///
/// Threads: run() any; it changes nothing of the coder.
class StripeCoder {
 public:
  /// Blocks are handled in steps of so many bytes, at addresses that are multiples of it.
  static constexpr std::size_t kStep = 64;
  static constexpr std::size_t whole_steps(std::size_t bytes) {
    return (bytes + kStep - 1) / kStep * kStep;
  }

  /// To make the blocks `wanted` from the blocks `have`, as many as there is data.
  /// kInvalidArgument: a number occurs twice or is too large, or the counts do not fit.
  static Result<StripeCoder> create(std::uint32_t data, std::uint32_t parity,
                                    std::vector<std::uint8_t> have,
                                    std::vector<std::uint8_t> wanted);
  /// The blocks in the order of create(); `bytes` is a multiple of kStep.
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
