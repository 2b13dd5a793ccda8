#pragma once

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "core/values/types.h"
#include "transport/transport.h"

namespace stdchk::transport {

/// A DirectMemory reads a peer's region within the call, on the caller's thread. The read does not
/// wait for the reactor's thread, so a short read saves two thread switches.
///
/// Threads: any, several at once. It may outlive its link.
/// Errors: kPeerLost when the link or the region has ended, or the peer's memory cannot be read.
/// Not: authentic bytes. When the peer has ended, another process may get its process id before the
///   link notices. The caller must check the bytes.
class DirectMemory {
 public:
  virtual ~DirectMemory() = default;
  virtual Status read(std::uint64_t offset, MutableByteSpan out) const = 0;
};
using DirectMemoryPtr = std::shared_ptr<const DirectMemory>;

/// A DirectlyReadable is a Link whose peer's regions can be read directly. Use dynamic_cast to find
/// out whether a Link is one.
class DirectlyReadable {
 public:
  virtual ~DirectlyReadable() = default;
  /// Returns the region of `key`, or nullptr when the peer has no such region. Threads: the
  /// reactor's.
  virtual DirectMemoryPtr direct_memory(const RemoteKey& key) const = 0;
};

}  // namespace stdchk::transport
