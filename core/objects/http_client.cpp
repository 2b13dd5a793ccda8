#include "core/objects/http_client.h"

#include <curl/curl.h>
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/objects/curl_library.h"

namespace stdchk {
namespace {

constexpr long kConnectMs = 5000;
/// A server that refuses a body may say so before the body comes. Some servers say nothing.
constexpr long kExpectMs = 200;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

}  // namespace

/// A Transfer is one request on a handle of libcurl.
///
/// Threads: one.
class HttpClient::Transfer {
 public:
  Transfer(const CurlLibrary& curl, CURL* handle, const HttpRequest& request,
           const std::function<bool()>& stopped)
      : curl_(curl), handle_(handle), request_(request), stopped_(stopped) {}
  ~Transfer() { curl_.free_all(headers_); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Signs with `credentials`, or asks a service of this host if they are nullptr.
  Outcome<HttpAnswer> run(const std::string& region, const Credentials* credentials, Duration limit,
                          std::int64_t skew_s) {
    set_up(limit);
    if (credentials != nullptr) {
      sign(region, *credentials, skew_s);
    } else {
      curl_.set(handle_, CURLOPT_PROXY, "");
      curl_.set(handle_, CURLOPT_NOPROXY, "*");
    }
    set_body();
    for (const std::string& header : request_.headers) add_header(header);
    curl_.set(handle_, CURLOPT_HTTPHEADER, headers_);
    const CURLcode code = curl_.perform(handle_);
    curl_.get(handle_, CURLINFO_RESPONSE_CODE, &answer_.status);
    if (code != CURLE_OK) return failure(code);
    return std::move(answer_);
  }

 private:
  void add_header(const std::string& header) { headers_ = curl_.append(headers_, header.c_str()); }

  void sign(const std::string& region, const Credentials& credentials, std::int64_t skew_s) {
    // The provider, its header names, the region and the service.
    const std::string scope = fmt::format("aws:amz:{}:s3", region);
    curl_.set(handle_, CURLOPT_AWS_SIGV4, scope.c_str());
    curl_.set(handle_, CURLOPT_USERNAME, credentials.key_id.c_str());
    curl_.set(handle_, CURLOPT_PASSWORD, credentials.secret.c_str());
    if (!credentials.session_token.empty()) {
      add_header("x-amz-security-token: " + credentials.session_token);
    }
    if (skew_s != 0) {
      const std::time_t now = std::time(nullptr) + static_cast<std::time_t>(skew_s);
      add_header(fmt::format("X-Amz-Date: {:%Y%m%dT%H%M%SZ}", fmt::gmtime(now)));
    }
  }

  void set_up(Duration limit) {
    using std::chrono::milliseconds;
    using std::chrono::seconds;
    const auto limit_ms = std::max<long>(
        1, static_cast<long>(std::chrono::duration_cast<milliseconds>(limit).count()));
    curl_.set(handle_, CURLOPT_URL, request_.url.c_str());
    curl_.set(handle_, CURLOPT_PATH_AS_IS, 1L);
    curl_.set(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_.set(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_.set(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_.set(handle_, CURLOPT_USERAGENT, "stdchk");
    curl_.set(handle_, CURLOPT_CONNECTTIMEOUT_MS, std::min(kConnectMs, limit_ms));
    curl_.set(handle_, CURLOPT_TIMEOUT_MS, limit_ms);
    curl_.set(handle_, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_.set(handle_, CURLOPT_LOW_SPEED_TIME,
              static_cast<long>(std::chrono::duration_cast<seconds>(kSilenceMax).count()));
    curl_.set(handle_, CURLOPT_ERRORBUFFER, error_);
    curl_.set(handle_, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    curl_.set(handle_, CURLOPT_HEADERDATA, this);
    curl_.set(handle_, CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    curl_.set(handle_, CURLOPT_WRITEDATA, this);
    curl_.set(handle_, CURLOPT_NOPROGRESS, 0L);
    curl_.set(handle_, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    curl_.set(handle_, CURLOPT_XFERINFODATA, this);
    if (const char* bundle = std::getenv("AWS_CA_BUNDLE"); bundle != nullptr && *bundle != '\0') {
      curl_.set(handle_, CURLOPT_CAINFO, bundle);
    }
    // Old versions of libcurl sign a header "Expect:" that they do not send, so it stays.
    curl_.set(handle_, CURLOPT_EXPECT_100_TIMEOUT_MS, kExpectMs);
#if LIBCURL_VERSION_NUM >= 0x075700
    // A name server that hangs must not hold the thread after the deadline.
    curl_.set(handle_, CURLOPT_QUICK_EXIT, 1L);
#endif
  }

  void set_body() {
    const std::string& method = request_.method;
    if (method == "HEAD") {
      curl_.set(handle_, CURLOPT_NOBODY, 1L);
    } else if (method == "PUT") {
      curl_.set(handle_, CURLOPT_UPLOAD, 1L);
      curl_.set(handle_, CURLOPT_READFUNCTION, &Transfer::on_read);
      curl_.set(handle_, CURLOPT_READDATA, this);
      curl_.set(handle_, CURLOPT_SEEKFUNCTION, &Transfer::on_seek);
      curl_.set(handle_, CURLOPT_SEEKDATA, this);
      curl_.set(handle_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
    } else if (method == "POST") {
      curl_.set(handle_, CURLOPT_POST, 1L);
      curl_.set(handle_, CURLOPT_POSTFIELDSIZE_LARGE,
                static_cast<curl_off_t>(request_.body.size()));
      curl_.set(handle_, CURLOPT_POSTFIELDS,
                request_.body.empty() ? "" : reinterpret_cast<const char*>(request_.body.data()));
    } else if (method != "GET") {
      curl_.set(handle_, CURLOPT_CUSTOMREQUEST, method.c_str());
    }
  }

  Outcome<HttpAnswer> failure(CURLcode code) const {
    const char* const why = error_[0] != '\0' ? error_ : curl_.error_text(code);
    if (code == CURLE_ABORTED_BY_CALLBACK) {
      return problem(Code::kCancelled, "objects.http", 0, "The owner of the request ends");
    }
    if (too_long_) {
      return problem(Code::kMalformed, "objects.http", EMSGSIZE, "The answer is too long");
    }
    const Code kind = code == CURLE_OPERATION_TIMEDOUT ? Code::kDeadline : Code::kPeerLost;
    return problem(kind, "objects.http", EIO, fmt::format("The object store: {}", why));
  }

  static std::size_t on_header(char* bytes, std::size_t, std::size_t length, void* self) {
    auto& to = *static_cast<Transfer*>(self);
    const std::string_view line(bytes, length);
    // A new status line: the headers of "100 Continue" are over.
    if (line.starts_with("HTTP/")) to.answer_.headers.clear();
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || to.answer_.headers.size() > 200) return length;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && std::strchr(" \t\r\n", value.back()) != nullptr)
      value.remove_suffix(1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    to.answer_.headers[lower(line.substr(0, colon))] = value;
    return length;
  }

  static std::size_t on_bytes(char* bytes, std::size_t, std::size_t length, void* self) {
    auto& to = *static_cast<Transfer*>(self);
    long status = 0;
    to.curl_.get(to.handle_, CURLINFO_RESPONSE_CODE, &status);
    if (!to.request_.into.empty() && status / 100 == 2) {
      const std::size_t room = to.request_.into.size() - to.answer_.received_bytes;
      to.too_long_ = length > room;
      if (to.too_long_) return 0;
      std::memcpy(to.request_.into.data() + to.answer_.received_bytes, bytes, length);
      to.answer_.received_bytes += length;
      return length;
    }
    to.too_long_ = length > kTextBytesMax - to.answer_.text.size();
    if (to.too_long_) return 0;
    to.answer_.text.append(bytes, length);
    return length;
  }

  static std::size_t on_read(char* to, std::size_t size, std::size_t count, void* self) {
    auto& from = *static_cast<Transfer*>(self);
    const std::size_t length = std::min(size * count, from.request_.body.size() - from.sent_);
    if (length > 0) std::memcpy(to, from.request_.body.data() + from.sent_, length);
    from.sent_ += length;
    return length;
  }

  /// A kept connection may be closed when the request begins. libcurl then sends it again.
  static int on_seek(void* self, curl_off_t offset, int origin) {
    auto& from = *static_cast<Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 ||
        static_cast<std::size_t>(offset) > from.request_.body.size()) {
      return CURL_SEEKFUNC_FAIL;
    }
    from.sent_ = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto& of = *static_cast<Transfer*>(self);
    return of.stopped_ && of.stopped_() ? 1 : 0;
  }

  const CurlLibrary& curl_;
  CURL* const handle_;
  const HttpRequest& request_;
  const std::function<bool()>& stopped_;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
  HttpAnswer answer_;
  std::size_t sent_ = 0;
  bool too_long_ = false;
};

HttpClient::HttpClient(std::string region, std::function<bool()> stopped)
    : region_(std::move(region)), stopped_(std::move(stopped)) {}

HttpClient::~HttpClient() {
  const MutexLock lock(mutex_);
  const auto curl = CurlLibrary::load();
  if (!curl) return;  // then no handle was made
  for (void* handle : idle_) (*curl)->cleanup(static_cast<CURL*>(handle));
}

void HttpClient::set_skew(std::int64_t seconds) {
  const MutexLock lock(mutex_);
  skew_s_ = seconds;
}

void* HttpClient::take_handle() {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      void* const handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  const auto curl = CurlLibrary::load();
  return curl ? (*curl)->init() : nullptr;
}

void HttpClient::give_handle(void* handle) {
  const CurlLibrary& curl = **CurlLibrary::load();
  // Forgets all settings, credentials included, and keeps the connection.
  curl.reset(static_cast<CURL*>(handle));
  {
    const MutexLock lock(mutex_);
    if (idle_.size() < kIdleMax) return idle_.push_back(handle);
  }
  curl.cleanup(static_cast<CURL*>(handle));
}

Outcome<HttpAnswer> HttpClient::perform(const HttpRequest& request, const Credentials& credentials,
                                        Duration limit) {
  return perform(request, &credentials, limit);
}

Outcome<HttpAnswer> HttpClient::perform_unsigned(const HttpRequest& request, Duration limit) {
  return perform(request, nullptr, limit);
}

Outcome<HttpAnswer> HttpClient::perform(const HttpRequest& request, const Credentials* credentials,
                                        Duration limit) {
  const auto curl = CurlLibrary::load();
  if (!curl) return problem(curl.error());
  void* const handle = take_handle();
  if (handle == nullptr) {
    return problem(Code::kSystem, "objects.http", ENOMEM, "libcurl has no memory for a request");
  }
  std::int64_t skew_s = 0;
  {
    const MutexLock lock(mutex_);
    skew_s = skew_s_;
  }
  Transfer transfer(**curl, static_cast<CURL*>(handle), request, stopped_);
  auto answer = transfer.run(region_, credentials, limit, skew_s);
  give_handle(handle);
  return answer;
}

}  // namespace stdchk
