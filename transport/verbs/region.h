#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/transport.h"
#include "transport/verbs/device.h"
#include "transport/verbs/fragment.h"

namespace stdchk::transport::verbs {

class VerbsEndpoint;

/// A VerbsRegion is memory registered with one device, whole or in parts.
///
/// Owns: the registrations. Must be destroyed before its endpoint.
class VerbsRegion final : public MemoryRegion {
 public:
  /// `number` is the index of the peers' table of parts. A region of one part ignores it.
  VerbsRegion(VerbsEndpoint& endpoint, RegisteredParts parts, MutableByteSpan memory,
              std::uint32_t number)
      : endpoint_(endpoint), parts_(std::move(parts)), memory_(memory), number_(number) {}
  ~VerbsRegion() override;
  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override {
    const std::uint64_t key = in_parts() ? std::uint64_t{number_} << 32 : parts_.mrs.front()->rkey;
    return {key, reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size()};
  }
  bool in_parts() const { return parts_.mrs.size() > 1; }
  std::uint64_t part_bytes() const { return parts_.part_bytes; }
  std::uint32_t lkey(const std::byte* at) const {
    return parts_.mrs[static_cast<std::uint64_t>(at - memory_.data()) / parts_.part_bytes]->lkey;
  }
  RegionTable table() const;

 private:
  VerbsEndpoint& endpoint_;
  RegisteredParts parts_;
  MutableByteSpan memory_;
  std::uint32_t number_;
};

}  // namespace stdchk::transport::verbs
