#include <fmt/core.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/objects/instance_credentials.h"

namespace stdchk {
namespace {

constexpr std::int64_t kRenewBeforeS = 300;

/// Returns the host of an http URL, without the port; empty: it is no plain URL.
std::string_view host_of(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const bool is_plain = url.starts_with(kScheme) && std::ranges::all_of(url, [](char c) {
                          return c > ' ' && c < 0x7F && c != '@' && c != '\\' && c != '#';
                        });
  if (!is_plain) return {};
  url.remove_prefix(kScheme.size());
  if (url.starts_with('[')) return url.substr(0, std::min(url.find(']') + 1, url.size()));
  return url.substr(0, url.find_first_of("/:?"));
}

bool is_one_of(std::string_view host, std::initializer_list<std::string_view> hosts) {
  constexpr std::array<std::string_view, 3> kOwn{"127.0.0.1", "localhost", "[::1]"};
  return std::ranges::find(kOwn, host) != kOwn.end() ||
         std::ranges::find(hosts, host) != hosts.end();
}

/// A FlatJson reads a JSON object whose values are texts, numbers, true, false or null. Only the texts
/// count. The services answer with such an object.
class FlatJson {
 public:
  explicit FlatJson(std::string_view text) : rest_(text) {}
  /// Returns nothing for another text.
  std::optional<std::map<std::string, std::string>> read() {
    std::map<std::string, std::string> out;
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      if (!out.empty() && !take(',')) return std::nullopt;
      const auto name = read_text();
      if (!name || !take(':')) return std::nullopt;
      out[*name];
      if (rest_.starts_with('"')) {
        auto value = read_text();
        if (!value) return std::nullopt;
        out[*name] = std::move(*value);
      } else if (!skip_word()) {
        return std::nullopt;
      }
      skip_blanks();
    }
    return rest_.empty() ? std::optional(std::move(out)) : std::nullopt;
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(char wanted) {
    skip_blanks();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    skip_blanks();
    return true;
  }
  std::optional<std::string> read_text() {
    if (!rest_.starts_with('"')) return std::nullopt;
    std::string out;
    for (std::size_t at = 1; at < rest_.size(); ++at) {
      if (rest_[at] == '"') {
        rest_.remove_prefix(at + 1);
        return out;
      }
      if (rest_[at] != '\\') {
        out += rest_[at];
        continue;
      }
      const auto escaped = read_escape(++at);
      if (!escaped) return std::nullopt;
      out += *escaped;
    }
    return std::nullopt;
  }
  /// Reads what follows a backslash, and moves `at` to its last character. Keys, secrets, tokens and
  /// times have only ASCII; some services write "=" as \u003d.
  std::optional<char> read_escape(std::size_t& at) const {
    const std::string_view text = rest_.substr(std::min(at, rest_.size()));
    if (text.starts_with('"') || text.starts_with('\\') || text.starts_with('/')) return text[0];
    constexpr std::size_t kLength = 5;  // u003d
    if (!text.starts_with('u') || text.size() < kLength) return std::nullopt;
    unsigned value = 0;
    const char* const end = text.data() + kLength;
    if (std::from_chars(text.data() + 1, end, value, 16).ptr != end || value > 0x7F) {
      return std::nullopt;
    }
    at += kLength - 1;
    return static_cast<char>(value);
  }
  bool skip_word() {
    const std::size_t end = std::min(rest_.find_first_of(" \t\r\n,}"), rest_.size());
    const bool is_word =
        end > 0 && rest_.substr(0, end).find_first_of("[{\"") == std::string_view::npos;
    rest_.remove_prefix(end);
    return is_word;
  }

  std::string_view rest_;
};

/// Reads a time such as 2026-01-31T12:00:00Z, also with a fraction of a second.
std::int64_t seconds_of(const std::string& text) {
  std::tm fields{};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &fields);
  if (rest == nullptr || (*rest != 'Z' && *rest != '.')) return -1;
  return ::timegm(&fields);
}

}  // namespace

bool is_container_url(std::string_view url) {
  const bool is_plain =
      std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7F && c != '@'; });
  if (url.starts_with("https://")) return is_plain && url.size() > 8 && url[8] != '/';
  return is_one_of(host_of(url), {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"});
}

bool is_instance_url(std::string_view url) {
  return is_one_of(host_of(url), {"169.254.169.254", "[fd00:ec2::254]"});
}

Outcome<Credentials> parse_host_credentials(const std::string& text, std::int64_t now_s) {
  const auto malformed = [](const char* what) {
    return problem(Code::kMalformed, "objects.instance", EPROTO,
                   fmt::format("the answer of this host's service {}", what));
  };
  auto fields = FlatJson(text).read();
  if (!fields) return malformed("is no JSON object of texts");
  if (const std::string& code = (*fields)["Code"]; !code.empty() && code != "Success") {
    return malformed("gives no credentials, but an error code");
  }
  Credentials out;
  out.key_id = (*fields)["AccessKeyId"];
  out.secret = (*fields)["SecretAccessKey"];
  out.session_token = (*fields)["Token"];
  for (auto& [name, value] : *fields) {
    if (name == "SecretAccessKey" || name == "Token") OPENSSL_cleanse(value.data(), value.size());
  }
  if (out.key_id.empty() || out.secret.empty() || out.session_token.empty()) {
    return malformed("lacks a key, its secret, or its token");
  }
  const std::string& expires = (*fields)["Expiration"];
  if (expires.empty()) return out;
  out.expires_s = seconds_of(expires);
  if (out.expires_s <= 0) return malformed("has an expiration that is no time");
  // The services give the next credentials at least 5 minutes before the end of the last ones.
  out.renew_at_s = std::max(out.expires_s - kRenewBeforeS,
                            now_s + std::max<std::int64_t>(1, (out.expires_s - now_s) / 2));
  return out;
}

}  // namespace stdchk
