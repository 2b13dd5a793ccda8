#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/values/types.h"

namespace stdchk::fuzz {

/// A Choices turns the bytes of one input into numbers and texts, in order; after its end come
/// zeros.
class Choices {
 public:
  explicit Choices(ByteSpan bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  ByteSpan rest() const { return left_; }

  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto one = std::to_integer<std::uint8_t>(left_.front());
    left_ = left_.subspan(1);
    return one;
  }
  bool flag() { return (byte() & 1) != 0; }
  /// A number below `bound` (at most 256).
  unsigned below(unsigned bound) { return byte() % bound; }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  ByteSpan bytes(std::size_t count) {
    const ByteSpan taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }

 private:
  ByteSpan left_;
};

inline std::string text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace stdchk::fuzz
