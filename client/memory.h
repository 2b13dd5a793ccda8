#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/types.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A Memory is a block of huge-page memory, touched once, that every data endpoint may read and
/// write.
///
/// Owns: the pages and their registrations. Must be destroyed before the endpoints.
/// Threads: create on the reactor's thread or before it runs; then any.
/// Errors: kNoMemory, kMemlock.
class Memory {
 public:
  static Result<std::unique_ptr<Memory>> create(std::size_t bytes,
                                                const std::vector<transport::Endpoint*>& endpoints);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  MutableByteSpan bytes() const { return bytes_; }
  /// The registration for transfers on `endpoint`; nullptr when it is not one of ours.
  const transport::MemoryRegion* region(const transport::Endpoint& endpoint) const;

 private:
  Memory() = default;
  MutableByteSpan bytes_;
  std::vector<std::pair<const transport::Endpoint*, std::unique_ptr<transport::MemoryRegion>>>
      regions_;
};

}  // namespace stdchk::client
