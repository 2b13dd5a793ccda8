#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/problem.h"
#include "core/objects/credentials.h"
#include "core/values/types.h"

namespace stdchk {

struct HttpRequest {
  std::string method;  ///< GET, HEAD, PUT, POST or DELETE
  std::string url;     ///< with an encoded path, and the query in the order of its names
  std::vector<std::string> headers;  ///< "name: value"
  ByteSpan body;
  MutableByteSpan into;  ///< the body of an answer 2xx goes there; empty: to HttpAnswer::text
  /// The store answers 200 before it has done the work. The text says how the work ended.
  bool is_answered_early = false;
};

struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers;  ///< names in small letters
  std::string text;
  std::size_t received_bytes = 0;  ///< in HttpRequest::into
};

/// An HttpClient sends requests that libcurl signs for an object store (AWS Signature Version 4),
/// and keeps connections for later requests. TLS certificates are verified; AWS_CA_BUNDLE names the
/// authorities of a site.
///
/// Owns: idle connections, at most kIdleMax.
/// Threads: any; calls block.
/// Errors: kDeadline, kCancelled, kUnsupported without libcurl, kMalformed for an answer above
///   kTextBytesMax, kPeerLost for all failures between this host and the store.
/// Not: repeats. S3Store repeats requests.
class HttpClient {
 public:
  static constexpr std::size_t kIdleMax = 16;
  static constexpr std::size_t kTextBytesMax = std::size_t{16} << 20;
  /// A connection without 1 byte in this time counts as lost.
  static constexpr Duration kSilenceMax = std::chrono::seconds(15);

  /// `stopped`: true when the owner ends; polled at least each second.
  HttpClient(std::string region, std::function<bool()> stopped);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  Outcome<HttpAnswer> perform(const HttpRequest& request, const Credentials& credentials,
                              Duration limit);
  /// Asks a service of this host: without a signature, and past each proxy of the environment.
  Outcome<HttpAnswer> perform_unsigned(const HttpRequest& request, Duration limit);
  /// Signs with this time instead of the host's: the difference of the clocks in seconds.
  void set_skew(std::int64_t seconds);

 private:
  class Transfer;
  Outcome<HttpAnswer> perform(const HttpRequest& request, const Credentials* credentials,
                              Duration limit);
  void* take_handle();
  void give_handle(void* handle);

  const std::string region_;
  const std::function<bool()> stopped_;
  Mutex mutex_;
  std::vector<void*> idle_ STDCHK_GUARDED_BY(mutex_);  ///< CURL*
  std::int64_t skew_s_ STDCHK_GUARDED_BY(mutex_) = 0;
};

}  // namespace stdchk
