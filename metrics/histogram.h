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

/// What a Histogram had counted when it was looked at.
struct Distribution {
  struct Bucket {
    double bound = 0;         ///< the greatest value in it
    std::uint64_t count = 0;  ///< of this bucket and those before it
  };
  std::vector<Bucket> buckets;
  std::uint64_t count = 0;  ///< of all, also above the last bound
  double sum = 0;
};

/// A Histogram counts values, such as times in nanoseconds, by the bound that they do not exceed.
///
/// Owns: its counters; not the bounds, which are static. Threads: any; counting is two relaxed
/// additions.
/// Limits: kBucketsMax bounds, ascending.
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

  /// `per_unit`: 1e9 makes seconds of nanoseconds. What is counted meanwhile may be in one figure
  /// and not in another, but `count` is always that of all buckets.
  Distribution look(double per_unit = 1) const {
    Distribution out;
    out.sum = static_cast<double>(sum_.load(std::memory_order_relaxed)) / per_unit;
    for (std::size_t i = 0; i < bounds_.size(); ++i) {
      out.count += counts_[i].load(std::memory_order_relaxed);
      out.buckets.push_back({static_cast<double>(bounds_[i]) / per_unit, out.count});
    }
    out.count += counts_[bounds_.size()].load(std::memory_order_relaxed);
    return out;
  }
  /// Something was counted.
  bool used() const {
    return std::any_of(counts_.begin(), counts_.end(),
                       [](const auto& each) { return each.load(std::memory_order_relaxed) > 0; });
  }

 private:
  std::span<const std::uint64_t> bounds_;
  std::array<std::atomic<std::uint64_t>, kBucketsMax + 1> counts_{};
  std::atomic<std::uint64_t> sum_{0};
};

/// 100 us, 1 ms, ... 100 s, in nanoseconds.
inline constexpr std::array<std::uint64_t, 7> kTimeBounds{
    100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000, 10'000'000'000, 100'000'000'000};
/// 4 KiB, 16 KiB, ... 16 MiB.
inline constexpr std::array<std::uint64_t, 7> kSizeBounds{
    1U << 12U, 1U << 14U, 1U << 16U, 1U << 18U, 1U << 20U, 1U << 22U, 1U << 24U};

}  // namespace stdchk::metrics
