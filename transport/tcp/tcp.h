#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/secure/keyring.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// Settings limit the resources of peers without a proof, and the use of a key. Daemons use the
/// defaults.
struct Settings {
  /// Records under one key in one direction. Then a new key is made (RFC 8446, section 4.6.3).
  std::uint64_t records_max = std::uint64_t{1} << 23U;
  /// Largest number of connections without a proof, from all addresses together.
  std::size_t arriving_max = 1024;
  std::size_t arriving_of_address_max = 128;  ///< the same, from one address
  /// Peers that open links to this endpoint send the content of transfers in clear, with a tag
  /// against changes. All other bytes stay inside TLS. For networks without eavesdroppers.
  bool trusted_network = false;
  /// Time limit from accept() until the peer's proof.
  Duration prove_deadline = std::chrono::seconds(5);
};

/// Opens an endpoint over TCP with TLS 1.3. `host` is an address or a name of this host. With
/// `port` 0, listen() chooses a free port.
Result<std::unique_ptr<Endpoint>> open_tcp(Clock& clock, const std::string& host,
                                           std::uint16_t port,
                                           std::shared_ptr<const secure::Keyring> keyring,
                                           const Settings& settings = {});

/// Returns for example "OpenSSL 3.0.15".
std::string library_version();

}  // namespace stdchk::transport::tcp
