#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace stdchk {

/// How long content-defined chunks are, in bytes. The last chunk of a stream may be shorter.
struct ChunkSizes {
  std::uint32_t min = 0;
  std::uint32_t mean = 0;
  std::uint32_t max = 0;

  /// A quarter to four times the mean: 5 of 1000 chunks of random bytes are cut by the maximum.
  static constexpr ChunkSizes around(std::uint32_t mean_bytes) {
    return {mean_bytes / 4, mean_bytes, mean_bytes * 4};
  }
};

/// What looks for boundaries. All find the same.
enum class BoundaryEngine : std::uint8_t { kScalar, kAvx2, kAvx512 };
/// The widest that this processor has.
BoundaryEngine best_boundary_engine();
/// Those that this processor has, the narrowest first.
std::vector<BoundaryEngine> boundary_engines();
std::string_view name_of(BoundaryEngine engine);

/// A BoundaryFinder tells where content-defined chunks may end. Whether position p is a boundary
/// depends on the kWindow bytes before p and on nothing else:
///
///   word = the 4 bytes that end at p, xor those that end at p - 9, xor those that end at p - 18;
///          little endian; low, high: its halves
///   filter = 0x9E37 + low * 0x6A4F + high * 0xA2C5   mod 2^16
///   boundary: filter < 32, and a 64-bit mix of the 32 bytes that end at p is below a threshold
///
/// The filter, which one position of 2048 passes, is computed for 64 positions at once; the mix
/// only for those that pass. In a run of one byte value there is no boundary.
///
/// Limits: ChunkSizes::mean - min from 2048 bytes on; min at least kWindow. Threads: any.
class BoundaryFinder {
 public:
  static constexpr std::size_t kWindow = 32;
  static constexpr std::uint32_t kSpreadMin = 2048;  ///< of mean - min

  explicit BoundaryFinder(ChunkSizes sizes, BoundaryEngine engine = best_boundary_engine());

  /// The first boundary p with from <= p < to, or `to`. kWindow <= from; all before `to` is read.
  std::size_t find(const std::byte* bytes, std::size_t from, std::size_t to) const;
  BoundaryEngine engine() const { return engine_; }

 private:
  BoundaryEngine engine_;
  std::uint64_t below_;
};

/// A Chunker cuts a stream of bytes into chunks whose ends depend on their content: after the
/// minimum the first boundary, or the maximum. How the stream is handed over changes nothing.
///
/// The idea of a hash of each window of some bytes is that of LBFS (Muthitacharoen et al., SOSP
/// 2001) and of the papers' CbCH with overlap; see docs/decisions for what else was looked at.
/// Threads: one at a time.
class Chunker {
 public:
  explicit Chunker(ChunkSizes sizes, BoundaryEngine engine = best_boundary_engine());

  /// The next bytes of the stream; appends to `ends` where chunks end, in bytes from its start.
  void push(ByteSpan bytes, std::vector<std::uint64_t>& ends);
  /// The same; `inside` are the boundaries p >= kWindow of `bytes` alone, ascending, that some
  /// other thread has found.
  void push(ByteSpan bytes, std::span<const std::uint32_t> inside,
            std::vector<std::uint64_t>& ends);
  /// Ends the chunk where the bytes that were pushed end, and answers where that is.
  std::uint64_t end_chunk() { return start_ = position_; }
  /// Where the chunk begins that has not ended yet, from the stream's start.
  std::uint64_t chunk_start() const { return start_; }
  /// How many bytes were pushed.
  std::uint64_t position() const { return position_; }
  const ChunkSizes& sizes() const { return sizes_; }

 private:
  template <class FindInside>
  void cut(ByteSpan bytes, FindInside find_inside, std::vector<std::uint64_t>& ends);
  std::size_t find_at_seam(std::size_t from, std::size_t to) const;
  void remember(ByteSpan bytes);

  ChunkSizes sizes_;
  BoundaryFinder finder_;
  std::uint64_t start_ = 0;
  std::uint64_t position_ = 0;
  /// The last bytes of what was pushed, then the first ones of what is pushed now.
  static constexpr std::size_t kHistory = BoundaryFinder::kWindow - 1;
  std::array<std::byte, 2 * kHistory> seam_{};
};

/// All boundaries p >= kWindow of `bytes`.
std::vector<std::uint32_t> find_boundaries(const BoundaryFinder& finder, ByteSpan bytes);

}  // namespace stdchk
