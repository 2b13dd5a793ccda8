#include "metrics/listen_address.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>

namespace stdchk::metrics {

Outcome<ListenAddress> ListenAddress::parse(const std::string& text) {
  ListenAddress out;
  std::string_view port = text;
  if (const auto colon = text.rfind(':'); colon != std::string::npos) {
    out.host = text.substr(0, colon);
    port.remove_prefix(colon + 1);
    if (out.host.starts_with('[') && out.host.ends_with(']')) {
      out.host = out.host.substr(1, out.host.size() - 2);
    } else if (out.host.find(':') != std::string::npos) {
      out.host.clear();
    }
  }
  const auto parsed = std::from_chars(port.begin(), port.end(), out.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.end() || out.host.empty()) {
    return problem(fmt::format(
        "--metrics \"{}\" is not ADDRESS:PORT, [ADDRESS]:PORT for IPv6, or PORT", text));
  }
  return out;
}

std::string ListenAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

bool ListenAddress::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace stdchk::metrics
