#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A Memory is a block of huge pages that every data endpoint may read and write.
///
/// Owns: the pages and their registrations. Must be destroyed before the endpoints.
/// Threads: create on the reactor's thread or before it runs; then any.
/// Errors: kNoMemory; the errors of registering memory.
class Memory {
 public:
  /// Fails when an endpoint cannot register the memory.
  static Result<std::unique_ptr<Memory>> create(std::size_t bytes,
                                                const std::vector<transport::Endpoint*>& endpoints);
  /// Removes the endpoints that cannot register the memory from `endpoints`, and logs each. Fails
  /// when no endpoint is left.
  static Result<std::unique_ptr<Memory>> create_where_possible(
      std::size_t bytes, std::vector<transport::Endpoint*>& endpoints);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  MutableByteSpan bytes() const { return bytes_; }
  /// The registration for transfers on `endpoint`; nullptr when the memory is not registered there.
  const transport::MemoryRegion* region(const transport::Endpoint& endpoint) const;

 private:
  Memory() = default;
  static Result<std::unique_ptr<Memory>> map(std::size_t bytes);
  Status register_at(transport::Endpoint& endpoint);

  MutableByteSpan bytes_;
  std::vector<std::pair<const transport::Endpoint*, std::unique_ptr<transport::MemoryRegion>>>
      regions_;
};

}  // namespace stdchk::client
