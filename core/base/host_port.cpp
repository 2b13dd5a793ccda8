#include "core/base/host_port.h"

#include <charconv>

namespace stdchk {

std::optional<HostPort> parse_host_port(std::string_view text) {
  HostPort out;
  const auto colon = text.rfind(':');
  const bool has_brackets = text.starts_with('[');
  const bool is_bare_ipv6 = !has_brackets && text.find(':') != colon;
  const bool has_port = colon != std::string_view::npos && !is_bare_ipv6 && !text.ends_with(']');
  const std::string_view host = has_port ? text.substr(0, colon) : text;
  if (has_brackets != host.ends_with(']')) return std::nullopt;
  out.host = without_brackets(host);
  if (out.host.empty() || out.host.find_first_of("[]") != std::string::npos) return std::nullopt;
  if (!has_port) return out;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, out.port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return out;
}

std::string without_brackets(std::string_view host) {
  if (host.size() > 2 && host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  return std::string(host);
}

}  // namespace stdchk
