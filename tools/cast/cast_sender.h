#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/result.h"
#include "fork/multicast/cast.h"
#include "tools/base/pool_record.h"
#include "tools/cast/bundle.h"
#include "tools/cast/cast_offer.h"

namespace stdchk::tools {

/// A CastSender sends the images that all nodes load to all of them at once, while this object
/// lives.
///
/// Owns: a connection to the pool; a thread with the sender; the offer in the pool, which goes with
/// end(). A killed process leaves the offer behind.
/// Threads: one. Limits: reads the images twice, once for their digests.
/// Not: a promise to serve each node. Unreached nodes and slow nodes read from the pool.
class CastSender {
 public:
  /// A node has two descriptors for each image, and programs often have 1024.
  static constexpr std::size_t kImagesMax = 400;

  /// Sends for at most `longest`, so that slow nodes have time to read from the pool. Fails when the
  /// host has no address that other nodes reach. Also fails for more images than kImagesMax, no
  /// data, or more data than multicast::kImageBytesMax.
  static Outcome<std::unique_ptr<CastSender>> start(const PoolRecord& pool,
                                                    std::vector<BundleImage> images,
                                                    std::size_t nodes, Duration longest);
  ~CastSender();
  CastSender(const CastSender&) = delete;
  CastSender& operator=(const CastSender&) = delete;

  /// The name of the offer.
  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bundle_.bytes(); }
  /// Ends the sender. Returns the number of nodes that got all bytes by the multicast or by relays.
  std::size_t end();

 private:
  CastSender(std::unique_ptr<client::Filesystem> filesystem, Bundle bundle,
             multicast::Manifest manifest)
      : filesystem_(std::move(filesystem)),
        bundle_(std::move(bundle)),
        manifest_(std::move(manifest)) {}

  Outcome<void> run(std::uint32_t own_host, std::size_t nodes, Duration longest);

  const std::unique_ptr<client::Filesystem> filesystem_;
  const Bundle bundle_;
  const multicast::Manifest manifest_;
  multicast::SendOptions options_;
  std::unique_ptr<PublishedOffer> offer_;
  std::string name_;
  std::thread thread_;
  std::atomic<bool> is_over_{false};
  std::size_t complete_ = 0;  ///< written by the thread, read after its end
};

/// Whether nodes get the images sooner from one sender than by reads from the pool. Each benefactor
/// sends its part to each node, so several benefactors are faster together than one sender.
bool is_worth_a_cast(client::Filesystem& filesystem, std::uint64_t bytes, std::size_t nodes);

}  // namespace stdchk::tools
