#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "core/values/types.h"

namespace stdchk::client {

/// A SeriesNaming decides which chunks of a series of images (A.Ni in one directory) get a name
/// from their content. Naming costs at least a third of a second of processor time per GB. It pays
/// when the pool already has some of the chunks. Under Naming::kAuto, all chunks are named as long
/// as that pays. Otherwise only samples are named, one chunk of kSampledOneOf. Naming all resumes
/// when enough samples are found, or when enough chunks have a CRC32C of the previous image.
///
/// A chunk is a sample by its content (its CRC32C). Equal chunks of two versions are therefore both
/// samples or both not, wherever they lie.
///
/// Owns: the CRCs of two images, at most kCrcsMost of each.
/// Threads: one at a time (the engine's lock).
class SeriesNaming {
 public:
  static constexpr std::uint32_t kSampledOneOf = 64;  ///< a power of two
  /// Bytes of the image to judge; fewer prove nothing.
  static constexpr std::uint64_t kJudgedBytes = 64ULL << 20;
  /// Naming pays when the pool already has at least one of this number of sampled bytes.
  static constexpr std::uint64_t kPaysOneOf = 20;
  static constexpr std::size_t kCrcsMost = 8192;

  explicit SeriesNaming(Naming mode, std::uint64_t judged_bytes = kJudgedBytes)
      : mode_(mode), judged_max_(judged_bytes) {}

  /// True when every chunk is to be named, whatever its CRC.
  bool names_all() const { return mode_ == Naming::kOn || (mode_ == Naming::kAuto && !sampling_); }
  /// True when the chunk with this CRC is to be named.
  bool names(std::uint32_t crc) const {
    return names_all() || (mode_ == Naming::kAuto && is_sample(crc));
  }
  /// True for chunks that Naming::kAuto always names.
  static bool is_sample(std::uint32_t crc) { return crc % kSampledOneOf == 0; }
  bool is_off() const { return mode_ == Naming::kOff; }
  /// The present way of naming.
  NamingState state() const {
    if (is_off()) return NamingState::kOff;
    return sampling_ ? NamingState::kDidNotPay : NamingState::kOn;
  }

  /// Records a chunk of the image, named or not. To be called once for each chunk.
  void record_chunk(std::uint32_t crc, std::uint32_t bytes);
  /// Records whether the pool already had a named chunk. While all chunks are named, the record
  /// counts only if all chunks of the previous image have names.
  void judge(std::uint32_t crc, std::uint32_t bytes, bool found);
  /// Says whether all chunks of the previous image have names.
  void compare_with(bool named_all) { earlier_named_all_ = named_all; }
  /// Call it when the image is committed. The next image is compared with it.
  void committed(bool named_all);

 private:
  /// The CRCs of an image. For a large image, it keeps only the CRCs that `one_of` divides.
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
  /// Bytes judged so far; a sample counts for all chunks that it stands for.
  std::uint64_t judged_ = 0;
  std::uint64_t found_ = 0;
  Crcs earlier_;
  Crcs crcs_;
};

}  // namespace stdchk::client
