#include "core/objects/object_place.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "core/base/limits.h"

namespace stdchk {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr std::string_view kDefaultRegion = "us-east-1";
/// S3 limits a key to 1024 bytes. The remaining bytes serve the paths of files.
constexpr std::size_t kPrefixBytesMax = 512;

std::string environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

tl::unexpected<Problem> bad_place(std::string_view text, std::string_view why) {
  return problem(Code::kInvalidArgument, "objects.place", EINVAL,
                 fmt::format("\"{}\" {}; write s3://BUCKET/PREFIX", text, why));
}

bool is_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

/// Amazon's rules; other stores accept less.
bool is_bucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && is_of(name, ".-") && name.front() != '.' &&
         name.front() != '-';
}

/// The signature covers the endpoint's host and port. A path or a query would be sent unsigned. A user's password would appear in shown texts.
bool is_endpoint(std::string_view url) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!url.starts_with(scheme)) continue;
    const std::string_view rest = url.substr(scheme.size());
    return !rest.empty() && rest.find_first_of("/@?# \t\r\n\\\"") == std::string_view::npos;
  }
  return false;
}

bool is_prefix(std::string_view prefix) {
  if (prefix.empty()) return true;
  if (prefix.size() > kPrefixBytesMax) return false;
  std::size_t at = 0;
  while (at <= prefix.size()) {
    const std::size_t end = std::min(prefix.find('/', at), prefix.size());
    const std::string_view part = prefix.substr(at, end - at);
    if (part.empty() || part == "." || part == "..") return false;
    if (std::ranges::any_of(part, [](char c) { return c > 0 && c < ' '; })) return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keeps_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keeps_slash);
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = text.data() + at + 1;
    if (text[at] == '%' && text.size() - at > 2 &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      at += 2;
    } else {
      out += text[at];
    }
  }
  return out;
}

Outcome<ObjectPlace> ObjectPlace::parse(std::string_view text) {
  if (!text.starts_with(kScheme)) return bad_place(text, "does not begin with s3://");
  ObjectPlace place;
  const std::size_t question = std::min(text.find('?'), text.size());
  std::string_view query = text.substr(std::min(question + 1, text.size()));
  const std::string_view whole = text.substr(kScheme.size(), question - kScheme.size());
  const std::size_t slash = std::min(whole.find('/'), whole.size());
  place.bucket = whole.substr(0, slash);
  place.prefix = whole.substr(std::min(slash + 1, whole.size()));
  while (place.prefix.ends_with('/')) place.prefix.pop_back();
  if (!is_bucket(place.bucket)) return bad_place(text, "names no valid bucket");
  if (!is_prefix(place.prefix)) return bad_place(text, "has a prefix that is no plain path");
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view word = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string value = percent_decoded(word.substr(std::min(equals + 1, word.size())));
    if (word.starts_with("endpoint=")) {
      place.endpoint = value;
    } else if (word.starts_with("region=")) {
      place.region = value;
    } else {
      return bad_place(text, "has a setting that is neither endpoint nor region");
    }
  }
  if (place.endpoint.empty())
    place.endpoint = environment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  while (place.endpoint.ends_with('/')) place.endpoint.pop_back();
  if (!place.endpoint.empty() && !is_endpoint(place.endpoint)) {
    return problem(Code::kInvalidArgument, "objects.place", EINVAL,
                   "The endpoint of the object store must be https://HOST[:PORT] or "
                   "http://HOST[:PORT], without a path, a user or a query");
  }
  if (place.region.empty()) place.region = environment({"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (place.region.empty()) place.region = kDefaultRegion;
  if (place.region.size() > 64 || !is_of(place.region, "-")) {
    return bad_place(text, "has a region that is no name of small letters, digits and hyphens");
  }
  return place;
}

Outcome<ObjectPlace> ObjectPlace::with_endpoint(std::string_view text,
                                                const std::string& endpoint) {
  const bool names_one = text.find("endpoint=") != std::string_view::npos;
  if (endpoint.empty() || names_one) return parse(text);
  const char next = text.find('?') == std::string_view::npos ? '?' : '&';
  return parse(fmt::format("{}{}endpoint={}", text, next, percent_encoded(endpoint)));
}

std::string ObjectPlace::name() const {
  return prefix.empty() ? fmt::format("s3://{}", bucket)
                        : fmt::format("s3://{}/{}", bucket, prefix);
}

std::string ObjectPlace::text() const {
  std::string out = name();
  char next = '?';
  const auto add = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    out += fmt::format("{}{}={}", next, key, percent_encoded(value));
    next = '&';
  };
  add("endpoint", endpoint);
  add("region", region);
  return out;
}

bool is_file_path(std::string_view path) {
  if (path.empty() || path.size() > limits::kPathBytesMax) return false;
  if (path.find('\0') != std::string_view::npos) return false;
  std::size_t at = 0;
  while (at <= path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > limits::kNameBytesMax) {
      return false;
    }
    at = end + 1;
  }
  return true;
}

std::string drain_name(const std::string& drain) {
  return is_object_store(drain) ? drain.substr(0, drain.find('?')) : drain;
}

std::string ObjectPlace::key_of(std::string_view path) const {
  return prefix.empty() ? std::string(path) : fmt::format("{}/{}", prefix, path);
}

std::string ObjectPlace::url_of(std::string_view key) const {
  const std::string encoded = percent_encoded(key, true);
  const std::string slash = key.empty() ? "" : "/";
  if (!endpoint.empty()) return fmt::format("{}/{}{}{}", endpoint, bucket, slash, encoded);
  const std::string_view domain = region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  // The certificate of Amazon's hosts covers no bucket with a dot in its name.
  if (bucket.find('.') != std::string::npos) {
    return fmt::format("https://s3.{}.{}/{}{}{}", region, domain, bucket, slash, encoded);
  }
  return fmt::format("https://{}.s3.{}.{}/{}", bucket, region, domain, encoded);
}

}  // namespace stdchk
