#include "transport/tcp/region.h"

#include "transport/tcp/endpoint.h"

namespace stdchk::transport::tcp {

TcpRegion::TcpRegion(TcpEndpoint& endpoint, MutableByteSpan memory)
    : endpoint_(endpoint), memory_(memory) {
  endpoint_.add(*this);
}

TcpRegion::~TcpRegion() { endpoint_.remove(*this); }

}  // namespace stdchk::transport::tcp
