#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "core/values/types.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A BundleImage is an image that several nodes load whole.
struct BundleImage {
  std::string name;  ///< path below the folder of its set
  FileId id;
  std::uint64_t size_bytes = 0;
  std::uint32_t mode = 0600;
};

/// A Bundle is the data of several images, one after the other, as one range of bytes. Holes are
/// left out. So one sender sends all images of a set.
///
/// Sender and receivers make the same Bundle from the pool. The layout shows that they did: a
/// digest of the images' names, versions, sizes and data.
///
/// Owns: the images, open for reading in the version of the layout. Threads: any.
class Bundle {
 public:
  static Outcome<Bundle> open(client::Filesystem& filesystem, std::vector<BundleImage> images);

  std::uint64_t bytes() const { return bytes_; }
  ChunkName layout() const;
  const std::vector<BundleImage>& images() const { return images_; }

  /// A Part is a range of the Bundle that lies in one image.
  struct Part {
    std::size_t image = 0;
    std::uint64_t offset = 0;  ///< in the image
    std::uint64_t at = 0;      ///< in the Bundle
    std::uint64_t length = 0;
  };
  /// Returns the parts of a range of the Bundle, in order.
  std::vector<Part> parts(std::uint64_t at, std::uint64_t length) const;
  /// Returns the parts of one image, in order.
  std::vector<Part> parts_of(std::size_t image) const;
  /// Reads from the pool. Fails with kCorrupt when an image is shorter than it was.
  Status read(std::uint64_t at, MutableByteSpan out) const;

 private:
  std::vector<BundleImage> images_;
  std::vector<std::unique_ptr<client::File>> files_;
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
};

}  // namespace stdchk::tools
