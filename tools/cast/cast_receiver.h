#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/cast/bundle.h"
#include "tools/cast/local_folder.h"

namespace stdchk::tools {

/// A CastReceiver makes a node's copies of the images of a Bundle. First it takes the bytes of a
/// CastSender. Then it reads missing bytes from the pool.
///
/// Owns: the copies until they have their names; the images, open in the pool.
/// Threads: complete() may run for several images at once, after receive().
class CastReceiver {
 public:
  /// Makes the copies, without bytes. The folders in `to` exist.
  static Outcome<CastReceiver> make(client::Filesystem& filesystem, const LocalFolder& to,
                                    std::vector<BundleImage> images);

  /// Receives what the sender of that offer sends, until all is there, or the sender ends, or this
  /// node lags. Never fails: complete() reads the rest. Serves other nodes that multicast does not
  /// reach.
  void receive(client::Filesystem& filesystem, const std::string& offer);
  /// Reads what the copy of the image lacks from the pool, and gives the copy its name.
  Outcome<void> complete(std::size_t image);

  std::size_t images() const { return copies_.size(); }

 private:
  CastReceiver(Bundle bundle, std::vector<LocalFile> copies);
  Status write(std::uint64_t at, ByteSpan bytes);
  Status read(std::uint64_t at, MutableByteSpan out) const;
  Outcome<void> read_from_pool(const Bundle::Part& part);

  Bundle bundle_;
  std::vector<LocalFile> copies_;
  std::vector<bool> is_here_;  ///< each unit of the Bundle
};

}  // namespace stdchk::tools
