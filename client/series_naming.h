#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "core/types.h"

namespace stdchk::client {

/// A SeriesNaming decides which chunks of a series of images (A.Ni in one directory) are named by
/// their content. Naming costs a processor a third of a second or more for a GB; it is worth it
/// when chunks are found that the pool has already. Under Naming::kAuto a series is named as long
/// as that pays. When it does not, one chunk of kSampledOneOf still is. All are again as soon as
/// enough samples are found, or enough chunks have a CRC32C that the image before had, too.
///
/// Samples are chosen by content (their CRC32C), so that equal chunks of two versions are chosen
/// alike wherever they lie.
///
/// Owns: the CRCs of two images, kCrcsMost of each at most.
/// Threads: one at a time (the engine's lock).
class SeriesNaming {
 public:
  static constexpr std::uint32_t kSampledOneOf = 64;          ///< a power of two
  static constexpr std::uint64_t kJudgedBytes = 64ULL << 20;  ///< of the image; fewer say nothing
  /// Naming pays when one byte of so many is found.
  static constexpr std::uint64_t kPaysOneOf = 20;
  static constexpr std::size_t kCrcsMost = 8192;

  explicit SeriesNaming(Naming mode, std::uint64_t judged_bytes = kJudgedBytes)
      : mode_(mode), judged_max_(judged_bytes) {}

  /// Each chunk is to be named, whatever its CRC.
  bool names_all() const { return mode_ == Naming::kOn || (mode_ == Naming::kAuto && !sampling_); }
  /// Whether the chunk with this CRC is to be named.
  bool names(std::uint32_t crc) const {
    return names_all() || (mode_ == Naming::kAuto && is_sample(crc));
  }
  /// A chunk that is named under Naming::kAuto whatever was found.
  static bool is_sample(std::uint32_t crc) { return crc % kSampledOneOf == 0; }
  bool off() const { return mode_ == Naming::kOff; }
  /// How it names at present.
  NamingState state() const {
    if (off()) return NamingState::kOff;
    return sampling_ ? NamingState::kDidNotPay : NamingState::kOn;
  }

  /// The image has this chunk, named or not. Told once of each.
  void saw(std::uint32_t crc, std::uint32_t bytes);
  /// A named chunk was, or was not, in the pool already. Nothing is concluded where not all chunks
  /// of the image before have names.
  void judge(std::uint32_t crc, std::uint32_t bytes, bool found);
  /// What this image can be compared with is known.
  void compare_with(bool named_all) { earlier_named_all_ = named_all; }
  /// The image is committed; the next one is compared with it.
  void committed(bool named_all);

 private:
  /// The CRCs of an image; of a large one those that are divisible by a power of two.
  struct Crcs {
    std::unordered_set<std::uint32_t> kept;
    std::uint32_t one_of = 1;

    bool keeps(std::uint32_t crc) const { return crc % one_of == 0; }
    void add(std::uint32_t crc);
  };

  void judge(std::uint64_t bytes, bool found);

  const Naming mode_;
  const std::uint64_t judged_max_;
  bool earlier_named_all_ = false;
  bool sampling_ = false;
  std::uint64_t judged_ = 0;  ///< bytes of the image that what was looked at stands for
  std::uint64_t found_ = 0;
  Crcs earlier_;
  Crcs crcs_;
};

}  // namespace stdchk::client
