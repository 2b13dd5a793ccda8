#include "core/objects/instance_credentials.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/crypto.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "core/base/descriptor.h"
#include "core/objects/http_client.h"
#include "core/objects/object_place.h"

namespace stdchk {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kAnswerBytesMax = 64 * 1024;
constexpr int kTries = 2;
/// A host without the service may lose packets to its address.
constexpr Duration kAttempt = 1s;
constexpr const char* kInstance = "http://169.254.169.254";
constexpr const char* kContainer = "http://169.254.170.2";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

tl::unexpected<Problem> no_credentials(std::string why) {
  return problem(Code::kConfig, "objects.instance", EACCES, std::move(why));
}

/// Sends the request, and repeats it without an answer. Returns the text of an answer 200.
Outcome<std::string> ask(HttpClient& http, const HttpRequest& request) {
  Problem last;
  for (int tries = 0; tries < kTries; ++tries) {
    auto answer = http.perform_unsigned(request, kAttempt);
    if (!answer) {
      last = {answer.error().error, fmt::format("{}: {}", request.url, answer.error().text)};
      continue;
    }
    if (answer->status == 200 && answer->text.size() <= kAnswerBytesMax) {
      return std::move(answer->text);
    }
    last = {{Code::kConfig, EACCES, "objects.instance"},
            fmt::format("{} answers {}", request.url, answer->status)};
    if (answer->status < 500) break;
  }
  return problem(std::move(last));
}

/// A line break would add a header.
bool is_header_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F; });
}

/// Returns the token that the container's endpoint wants; empty: none.
Outcome<std::string> container_token() {
  std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!path.empty()) {
    // The platform replaces the file when it renews the token.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    token.resize(kAnswerBytesMax);
    const ssize_t got = file ? ::read(file.get(), token.data(), token.size()) : -1;
    if (got < 0) {
      return no_credentials(fmt::format(
          "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names {}, which cannot be read", path));
    }
    token.resize(static_cast<std::size_t>(got));
    while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  }
  if (!is_header_value(token)) {
    return no_credentials("the token for the container's credentials contains a line break");
  }
  return token;
}

void wipe(std::string& text) { OPENSSL_cleanse(text.data(), text.size()); }

Outcome<Credentials> ask_container(HttpClient& http, const std::string& url) {
  if (!is_container_url(url)) {
    return no_credentials(fmt::format(
        "the container's endpoint {} is neither https nor an address of this host", url));
  }
  auto token = container_token();
  if (!token) return problem(token.error());
  HttpRequest request{"GET", url, {}, {}, {}};
  if (!token->empty()) request.headers.push_back("Authorization: " + *token);
  auto text = ask(http, request);
  if (!text) return problem(text.error());
  auto found = parse_host_credentials(*text, std::time(nullptr));
  wipe(*text);
  if (found) found->source = url;
  return found;
}

Outcome<Credentials> ask_instance(HttpClient& http) {
  std::string service = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (service.empty()) service = kInstance;
  while (service.ends_with('/')) service.pop_back();
  if (!is_instance_url(service)) {
    return no_credentials(fmt::format(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT names {}, which is no address of this host", service));
  }
  const auto token = ask(http, {"PUT",
                                service + "/latest/api/token",
                                {"X-aws-ec2-metadata-token-ttl-seconds: 300"},
                                {},
                                {}});
  if (!token) return problem(token.error());
  if (token->empty() || !is_header_value(*token)) {
    return no_credentials(fmt::format("{} gives no session token", service));
  }
  const std::vector<std::string> headers{"X-aws-ec2-metadata-token: " + *token};
  const std::string roles = service + "/latest/meta-data/iam/security-credentials/";
  auto role = ask(http, {"GET", roles, headers, {}, {}});
  if (!role) return problem(role.error());
  role->resize(std::min(role->find_first_of("\r\n"), role->size()));
  if (role->empty()) return no_credentials(fmt::format("{} names no role", service));
  auto text = ask(http, {"GET", roles + percent_encoded(*role), headers, {}, {}});
  if (!text) return problem(text.error());
  auto found = parse_host_credentials(*text, std::time(nullptr));
  wipe(*text);
  if (found) found->source = "the metadata service of this machine";
  return found;
}

}  // namespace

Outcome<Credentials> ask_host_for_credentials() {
  HttpClient http("", {});
  const std::string relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) {
    return ask_container(
        http, std::string(kContainer) + (relative.starts_with('/') ? "" : "/") + relative);
  }
  const std::string full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!full.empty()) return ask_container(http, full);
  const std::string disabled = environment("AWS_EC2_METADATA_DISABLED");
  if (disabled == "true" || disabled == "TRUE" || disabled == "True") {
    return no_credentials("AWS_EC2_METADATA_DISABLED is true");
  }
  return ask_instance(http);
}

}  // namespace stdchk
