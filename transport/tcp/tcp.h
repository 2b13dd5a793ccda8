#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/secure/keyring.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// What strangers may take, and how long a key is used. The defaults are what daemons use.
struct Settings {
  /// Encrypted under one key in one direction; then a new key is made (RFC 8446, section 4.6.3).
  std::uint64_t records_max = std::uint64_t{1} << 23U;
  /// Connections that have not proven anything yet: together, and from one address.
  std::size_t arriving_max = 1024;
  std::size_t arriving_of_address_max = 128;
  /// Content of transfers goes in clear on links that others open to this endpoint, with a tag
  /// against changes. All else stays inside TLS. For networks that nobody else listens to.
  bool trusted_network = false;
  /// From accept() until the peer has proven itself.
  Duration prove_deadline = std::chrono::seconds(5);
};

/// Opens an endpoint over TCP with TLS 1.3. `host` is an address of this host or a name of it;
/// `port` 0: any free one, from listen() on.
Result<std::unique_ptr<Endpoint>> open_tcp(Clock& clock, const std::string& host,
                                           std::uint16_t port,
                                           std::shared_ptr<const secure::Keyring> keyring,
                                           const Settings& settings = {});

/// "OpenSSL 3.0.15".
std::string library_version();

}  // namespace stdchk::transport::tcp
