#pragma once

#include <rdma/fi_domain.h>

#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// An OfiRegion is memory registered with one endpoint's domain.
class OfiRegion final : public MemoryRegion {
 public:
  OfiRegion(fid_mr* mr, MutableByteSpan memory, bool virtual_addresses)
      : mr_(mr), memory_(memory), virtual_addresses_(virtual_addresses) {}
  ~OfiRegion() override { fi_close(&mr_->fid); }
  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override {
    const auto base = virtual_addresses_ ? reinterpret_cast<std::uint64_t>(memory_.data()) : 0;
    return {.key = fi_mr_key(mr_), .base = base, .length = memory_.size()};
  }
  void* descriptor() const { return fi_mr_desc(mr_); }

 private:
  fid_mr* mr_;
  MutableByteSpan memory_;
  bool virtual_addresses_;
};

}  // namespace stdchk::transport::ofi
