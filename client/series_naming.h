#pragma once

#include <cstdint>

#include "core/types.h"

namespace stdchk::client {

/// A SeriesNaming decides which chunks of a series of images (A.Ni in one directory) are named by
/// their content. Naming costs a processor half a second for a GB; it is worth it when chunks are
/// found that the pool has already. Under Naming::kAuto a series is named as long as that pays.
/// When it does not, one chunk of kSampledOneOf still is, and as soon as enough of those are found
/// again, all are.
///
/// Samples are chosen by content (their CRC32C), so that equal chunks of two versions are chosen
/// alike wherever they lie.
///
/// Threads: one at a time (the engine's lock).
class SeriesNaming {
 public:
  static constexpr std::uint32_t kSampledOneOf = 32;          ///< a power of two
  static constexpr std::uint64_t kJudgedBytes = 64ULL << 20;  ///< of the image; fewer say nothing
  /// Naming pays when one byte of so many is found.
  static constexpr std::uint64_t kPaysOneOf = 20;

  explicit SeriesNaming(Naming mode, std::uint64_t judged_bytes = kJudgedBytes)
      : mode_(mode), judged_max_(judged_bytes) {}

  /// Whether the chunk with this CRC is to be named.
  bool names(std::uint32_t crc) const {
    return mode_ == Naming::kOn || (mode_ == Naming::kAuto && (!sampling_ || is_sample(crc)));
  }
  /// A chunk that is named under Naming::kAuto whatever was found.
  static bool is_sample(std::uint32_t crc) { return crc % kSampledOneOf == 0; }
  bool off() const { return mode_ == Naming::kOff; }
  /// Only samples are named at present.
  bool sampling() const { return sampling_; }

  /// What an image can be compared with: all chunks of an earlier one, or its samples. Told when
  /// its first chunk is named, and when an image was committed, for the next one.
  void compare_with(bool named_all) { earlier_ = named_all ? Earlier::kAll : Earlier::kSamples; }
  /// A named chunk was, or was not, in the pool already. Nothing is concluded from the first image
  /// of a series.
  void judge(std::uint32_t crc, std::uint32_t bytes, bool found);

 private:
  enum class Earlier : std::uint8_t { kNothing, kSamples, kAll };

  const Naming mode_;
  const std::uint64_t judged_max_;
  Earlier earlier_ = Earlier::kNothing;
  bool sampling_ = false;
  std::uint64_t judged_ = 0;  ///< bytes of the image that what was looked at stands for
  std::uint64_t found_ = 0;
};

}  // namespace stdchk::client
