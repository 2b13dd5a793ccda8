#pragma once

#include "transport/transport.h"

namespace stdchk::transport::tcp {

class TcpEndpoint;

/// A TcpRegion is memory that peers reach by the keys that links have made for it.
class TcpRegion final : public MemoryRegion {
 public:
  TcpRegion(TcpEndpoint& endpoint, MutableByteSpan memory);
  ~TcpRegion() override;
  MutableByteSpan bytes() const override { return memory_; }
  /// Opens nothing: Link::share() makes the key of a link.
  RemoteKey remote_key() const override { return {0, 0, memory_.size()}; }
  const TcpEndpoint& endpoint() const { return endpoint_; }

 private:
  TcpEndpoint& endpoint_;
  MutableByteSpan memory_;
};

}  // namespace stdchk::transport::tcp
