#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::pager {

/// A Source supplies the bytes of one image, which do not change while it lives.
///
/// Threads: any; several calls at a time.
/// Errors: a failed read may succeed later. The page server reports it to the clones that wait for
///   these bytes, and asks again when another clone touches them.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size_bytes() const = 0;
  /// Names the image in messages.
  virtual const std::string& name() const = 0;
  /// Fills `out` with the bytes from `offset` on. The range lies within the image. The bytes were
  /// checked: an image of the pool by its chunks' checksums, part by part.
  virtual Status read(std::uint64_t offset, MutableByteSpan out) = 0;
  /// True when the source knows that the range has zeros only: a hole of the image. Then nothing
  /// needs to be read. By default a source knows of no hole.
  virtual bool is_hole(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) { return false; }

  /// The order in which an earlier host touched the image (TouchOrder::encode), or an empty text.
  virtual std::string recorded_order() { return {}; }
  /// Keeps the order beside the image for later hosts. By default the source drops it.
  virtual void record_order(const std::string& /*order*/) {}
};

}  // namespace stdchk::pager
