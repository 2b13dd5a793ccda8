#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/objects/credentials.h"
#include "core/objects/http_client.h"

namespace stdchk {

/// An S3Sender sends requests to an S3 store, and repeats them where that may help (S3Store).
/// Credentials that end are renewed before their end.
///
/// Threads: any.
class S3Sender {
 public:
  /// `clock` must outlive this.
  S3Sender(std::string region, Credentials credentials, const Clock& clock,
           std::function<bool()> stopped);

  /// `what` names the object, for messages. An answer with another status than 2xx is an error.
  Outcome<HttpAnswer> send(HttpRequest request, const std::string& what, Time deadline);

 private:
  struct Verdict;
  Verdict judge(const HttpAnswer& answer, const std::string& what);
  Outcome<HttpAnswer> attempt(const HttpRequest& request, Time deadline);
  Outcome<void> use_fresh_credentials();
  Outcome<void> pause(Duration time, Time deadline) const;
  void note_time_of(const HttpAnswer& answer);
  Outcome<Credentials> credentials();

  const Clock& clock_;
  const std::function<bool()> stopped_;
  HttpClient http_;
  Mutex mutex_;
  Credentials credentials_ STDCHK_GUARDED_BY(mutex_);
  bool is_renewing_ STDCHK_GUARDED_BY(mutex_) = false;
};

/// Returns base64 (RFC 4648).
std::string base64(ByteSpan bytes);
/// Returns the value of the header x-amz-checksum-crc32c.
std::string crc_header_value(ByteSpan bytes);
/// Returns the SHA-256 of `bytes` in hexadecimal digits.
std::string sha256_text(ByteSpan bytes);

}  // namespace stdchk
