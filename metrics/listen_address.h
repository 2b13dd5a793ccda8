#pragma once

#include <cstdint>
#include <string>

#include "core/base/problem.h"

namespace stdchk::metrics {

/// A ListenAddress is the value of --metrics: the address at which an endpoint listens.
struct ListenAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free port

  /// Parses "ADDRESS:PORT", "[ADDRESS]:PORT" for IPv6, or "PORT". An error is a sentence.
  static Outcome<ListenAddress> parse(const std::string& text);
  /// The text that parse() reads.
  std::string text() const;
  /// True when only this host can reach the address.
  bool is_loopback() const;
  /// True when it stands for every address of the host.
  bool is_any() const { return host == "0.0.0.0" || host == "::"; }
};

}  // namespace stdchk::metrics
