#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

namespace stdchk::metrics {

/// A ListenAddress is what --metrics says: where an endpoint listens.
struct ListenAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: a free one

  /// "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, or "PORT". An error is a sentence.
  static tl::expected<ListenAddress, std::string> parse(const std::string& text);
  /// As parse() reads it.
  std::string text() const;
  /// It is reached from this host only.
  bool is_loopback() const;
  /// It stands for every address of the host.
  bool is_any() const { return host == "0.0.0.0" || host == "::"; }
};

}  // namespace stdchk::metrics
