#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace stdchk::metrics {

/// A Distribution is a snapshot of a Histogram.
struct Distribution {
  struct Bucket {
    double bound = 0;         ///< the greatest value that the bucket counts
    std::uint64_t count = 0;  ///< values up to this bound
  };
  std::vector<Bucket> buckets;
  std::uint64_t count = 0;  ///< all values, including those above the last bound
  double sum = 0;
};

/// A Histogram counts values, such as times in nanoseconds. Each bound has a bucket for values up
/// to it; a last bucket takes greater values.
///
/// Owns: its counters; not the bounds, which are static.
/// Threads: any; counting costs two relaxed additions.
/// Limits: kBucketsMax bounds, in ascending order.
class Histogram {
 public:
  static constexpr std::size_t kBucketsMax = 15;

  explicit Histogram(std::span<const std::uint64_t> bounds)
      : bounds_(bounds.first(std::min(bounds.size(), kBucketsMax))) {}

  void count(std::uint64_t value) {
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    const auto bucket = static_cast<std::size_t>(std::distance(bounds_.begin(), bound));
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  /// Returns a snapshot. Divides values by `per_unit`: 1e9 turns nanoseconds into seconds. A value
  /// that is counted meanwhile may be missing in `sum`, but `count` always equals the sum of all
  /// buckets.
  Distribution snapshot(double per_unit = 1) const {
    Distribution out;
    out.sum = static_cast<double>(sum_.load(std::memory_order_relaxed)) / per_unit;
    for (std::size_t i = 0; i < bounds_.size(); ++i) {
      out.count += counts_[i].load(std::memory_order_relaxed);
      out.buckets.push_back({static_cast<double>(bounds_[i]) / per_unit, out.count});
    }
    out.count += counts_[bounds_.size()].load(std::memory_order_relaxed);
    return out;
  }
  /// True when any value was counted.
  bool used() const {
    return std::any_of(counts_.begin(), counts_.end(),
                       [](const auto& each) { return each.load(std::memory_order_relaxed) > 0; });
  }

 private:
  std::span<const std::uint64_t> bounds_;
  std::array<std::atomic<std::uint64_t>, kBucketsMax + 1> counts_{};
  std::atomic<std::uint64_t> sum_{0};
};

/// 100 us, 1 ms, 10 ms and so on up to 100 s, in nanoseconds.
inline constexpr std::array<std::uint64_t, 7> kTimeBounds{
    100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000, 10'000'000'000, 100'000'000'000};
/// 4 KiB, 16 KiB, 64 KiB and so on up to 16 MiB, in bytes.
inline constexpr std::array<std::uint64_t, 7> kSizeBounds{
    1U << 12U, 1U << 14U, 1U << 16U, 1U << 18U, 1U << 20U, 1U << 22U, 1U << 24U};

}  // namespace stdchk::metrics
