#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/values/types.h"

namespace stdchk {

/// The lengths of content-defined chunks in bytes. A stream's last chunk may be shorter.
struct ChunkSizes {
  std::uint32_t min = 0;
  std::uint32_t mean = 0;
  std::uint32_t max = 0;

  /// From a quarter of the mean to four times the mean. The maximum cuts e^-5, 7 of 1000, of the
  /// chunks of random bytes.
  static constexpr ChunkSizes around(std::uint32_t mean_bytes) {
    return {mean_bytes / 4, mean_bytes, mean_bytes * 4};
  }
};

/// The implementations of the boundary search. All find the same boundaries.
enum class BoundaryEngine : std::uint8_t { kScalar, kAvx2, kAvx512 };
/// Returns the widest engine that this processor supports.
BoundaryEngine best_boundary_engine();
/// Returns the engines that this processor supports, the narrowest first.
std::vector<BoundaryEngine> boundary_engines();
std::string_view name_of(BoundaryEngine engine);

/// A BoundaryFinder finds where content-defined chunks may end. Whether position p is a boundary
/// depends only on the kWindow bytes before p:
///
///    word = the 4 bytes that end at p, xor those that end at p - 9, xor those that end at p - 18;
///           little endian; low, high: its halves
///    filter = 0x9E37 + low * 0x6A4F + high * 0xA2C5   mod 2^16
///    boundary: filter < 32, and a 64-bit mix of the 32 bytes that end at p is below a threshold
///
/// The filter is computed for 64 positions at once, and one position in 2048 passes it. The mix is
/// computed only for these. A run of one byte value contains no boundary.
///
/// Limits: ChunkSizes::mean - min is at least 2048 bytes; min is at least kWindow. Threads: any.
class BoundaryFinder {
 public:
  static constexpr std::size_t kWindow = 32;
  static constexpr std::uint32_t kSpreadMin = 2048;  ///< minimum of mean - min

  explicit BoundaryFinder(ChunkSizes sizes, BoundaryEngine engine = best_boundary_engine());

  /// Returns the first boundary p with from <= p < to, or `to`. Requires kWindow <= from; reads the
  /// bytes before `to`.
  std::size_t find(const std::byte* bytes, std::size_t from, std::size_t to) const;
  BoundaryEngine engine() const { return engine_; }

 private:
  BoundaryEngine engine_;
  std::uint64_t below_;
};

/// A Chunker cuts a stream of bytes into chunks whose ends depend on their content. A chunk ends at
/// the first boundary behind the minimum, or at the maximum. The division of the stream into push()
/// calls changes nothing.
///
/// LBFS (Muthitacharoen et al., SOSP 2001), and the papers' CbCH with overlap, hash a window at
/// each position in the same way. The alternatives are in docs/decisions.
///
/// Threads: one at a time.
class Chunker {
 public:
  explicit Chunker(ChunkSizes sizes, BoundaryEngine engine = best_boundary_engine());

  /// Takes the next bytes of the stream. Appends the ends of chunks to `ends`, in bytes from the
  /// stream's start.
  void push(ByteSpan bytes, std::vector<std::uint64_t>& ends);
  /// Like the other push(). `inside` are the boundaries p >= kWindow within `bytes`, ascending,
  /// which another thread has found.
  void push(ByteSpan bytes, std::span<const std::uint32_t> inside,
            std::vector<std::uint64_t>& ends);
  /// Ends the present chunk behind the last pushed byte. Returns that position.
  std::uint64_t end_chunk() { return start_ = position_; }
  /// Returns where the present chunk begins, in bytes from the stream's start.
  std::uint64_t chunk_start() const { return start_; }
  /// Returns the number of bytes pushed.
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
  /// The last bytes of earlier pushes, then the first bytes of the present push.
  static constexpr std::size_t kHistory = BoundaryFinder::kWindow - 1;
  std::array<std::byte, 2 * kHistory> seam_{};
};

/// Returns all boundaries p >= kWindow of `bytes`.
std::vector<std::uint32_t> find_boundaries(const BoundaryFinder& finder, ByteSpan bytes);

}  // namespace stdchk
