#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/values/types.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// A Pieces is the unmoved rest of a transfer whose memory lies in several places.
///
/// Owns: nothing of the memory.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(MutableByteSpan memory) : count_(1), left_(memory.size()) { spans_[0] = memory; }
  explicit Pieces(std::span<const LocalPiece> pieces) {
    for (const LocalPiece& piece : pieces) {
      if (piece.length == 0) continue;
      spans_[count_++] = {piece.data, piece.length};
      left_ += piece.length;
    }
  }

  std::size_t left() const { return left_; }
  /// Returns the first contiguous bytes of the rest. left() must not be 0.
  MutableByteSpan front() const {
    return spans_[first_].first(std::min(spans_[first_].size(), left_));
  }
  /// `bytes` is at most front().size().
  void drop(std::size_t bytes) {
    spans_[first_] = spans_[first_].subspan(bytes);
    left_ -= bytes;
    if (spans_[first_].empty() && left_ > 0) ++first_;
  }
  /// Cuts the first `bytes` off and returns them. `bytes` is at most left().
  Pieces take(std::size_t bytes) {
    Pieces taken = *this;
    taken.left_ = bytes;
    while (bytes > 0) {
      const std::size_t part = std::min(bytes, front().size());
      drop(part);
      bytes -= part;
    }
    return taken;
  }

 private:
  std::array<MutableByteSpan, kPiecesMax> spans_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t left_ = 0;
};

}  // namespace stdchk::transport::tcp
