#include "core/objects/s3_request.h"

#include <fmt/core.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <random>
#include <span>
#include <thread>
#include <utility>

#include "core/base/back_off.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/naming.h"
#include "core/crypto/secret.h"
#include "core/objects/s3_store.h"
#include "core/objects/xml_text.h"

namespace stdchk {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstPause = 100ms;
constexpr Duration kLongestPause = 5s;
constexpr Duration kLongestOrderedPause = 30s;
constexpr Duration kPollStop = 50ms;
/// An attempt may take this time, and a second more for each MiB.
constexpr Duration kAttempt = 10s;
constexpr std::int64_t kRenewAgainS = 10;
constexpr std::size_t kShownBytesMax = 200;

Duration attempt_limit(const HttpRequest& request) {
  const std::uint64_t bytes = request.body.size() + request.into.size();
  return kAttempt + Duration(bytes / limits::kMiB * 1'000'000'000);
}

/// A random part keeps the members of a pool from asking all at once.
Duration with_jitter(Duration time) {
  std::array<std::byte, 1> random{};
  fill_random(random);
  return time / 2 + time * std::to_integer<int>(random[0]) / 512;
}

/// Returns the beginning of a text of the store for a log of lines: control characters could forge
/// lines, and move a terminal's cursor.
std::string shown_text(std::string text) {
  text.resize(std::min(text.size(), kShownBytesMax));
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == 0x7F) c = '?';
  }
  return text;
}

/// Returns the status that a store would have answered, had it waited for the end of the work.
long final_status(const HttpAnswer& answer) {
  if (answer.status != 200 || xml_text(answer.text, "ETag")) return answer.status;
  const std::string code = xml_text(answer.text, "Code").value_or("");
  for (const std::string_view passing : {"", "InternalError", "SlowDown", "ServiceUnavailable"}) {
    if (code == passing) return 500;
  }
  return 400;
}

}  // namespace

std::string base64(ByteSpan bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(length));
  return out;
}

std::string crc_header_value(ByteSpan bytes) {
  const std::uint32_t crc = crc32c(0, bytes);
  const std::array<std::byte, 4> big_endian{
      static_cast<std::byte>(crc >> 24), static_cast<std::byte>(crc >> 16 & 0xFF),
      static_cast<std::byte>(crc >> 8 & 0xFF), static_cast<std::byte>(crc & 0xFF)};
  return base64(big_endian);
}

std::string sha256_text(ByteSpan bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string out;
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

/// A Verdict is the consequence of an answer with another status than 2xx.
struct S3Sender::Verdict {
  bool again = false;
  bool damaged = false;          ///< the store received other bytes than were sent
  bool new_credentials = false;  ///< repeat with fresh credentials
  Duration ordered_pause{};
  Problem problem;
};

S3Sender::S3Sender(std::string region, Credentials credentials, const Clock& clock,
                   std::function<bool()> stopped)
    : clock_(clock),
      stopped_(std::move(stopped)),
      http_(std::move(region), stopped_),
      credentials_(std::move(credentials)) {}

/// Returns the credentials, and renews them first if their time has come. Meanwhile other threads use
/// the old ones.
Outcome<Credentials> S3Sender::credentials() {
  const std::int64_t now_s = std::time(nullptr);
  MutexLock lock(mutex_);
  const bool has_ended = credentials_.expires_s != 0 && now_s >= credentials_.expires_s;
  const bool is_due = credentials_.renew_at_s != 0 && now_s >= credentials_.renew_at_s;
  if (!is_due || (is_renewing_ && !has_ended)) return credentials_;
  is_renewing_ = true;
  lock.unlock();
  auto found = find_credentials();
  lock.lock();
  is_renewing_ = false;
  if (found) {
    credentials_ = std::move(*found);
  } else if (has_ended) {
    // The service of the host may answer the next request.
    return problem(Code::kPeerLost, "objects.s3", EACCES, std::move(found.error().text));
  } else {
    log::warning("the credentials end in {} s and cannot be renewed now: {}",
                 credentials_.expires_s - now_s, found.error().text);
    credentials_.renew_at_s = now_s + kRenewAgainS;
  }
  return credentials_;
}

Outcome<void> S3Sender::use_fresh_credentials() {
  auto found = find_credentials();
  if (!found) return problem(found.error());
  const MutexLock lock(mutex_);
  credentials_ = std::move(*found);
  return {};
}

Outcome<void> S3Sender::pause(Duration time, Time deadline) const {
  const Time until = std::min(clock_.now() + time, deadline);
  while (clock_.now() < until) {
    if (stopped_ && stopped_()) {
      return problem(Code::kCancelled, "objects.s3", 0, "The owner of the request ends");
    }
    std::this_thread::sleep_for(std::min(kPollStop, Duration(until - clock_.now())));
  }
  return {};
}

/// The signature contains the time. A store refuses requests whose time differs by 15 minutes.
void S3Sender::note_time_of(const HttpAnswer& answer) {
  const auto date = answer.headers.find("date");
  if (date == answer.headers.end()) return;
  std::tm fields{};
  const char* const end = ::strptime(date->second.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &fields);
  if (end == nullptr) return;
  const std::int64_t skew = ::timegm(&fields) - std::time(nullptr);
  log::warning(
      "this host's clock differs by {} s from the object store's; requests use the store's", skew);
  http_.set_skew(skew);
}

S3Sender::Verdict S3Sender::judge(const HttpAnswer& answer, const std::string& what) {
  const std::string code = shown_text(xml_text(answer.text, "Code").value_or(""));
  const std::string message = shown_text(xml_text(answer.text, "Message").value_or(""));
  Verdict verdict;
  verdict.problem = {
      {Code::kSystem, EIO, "objects.s3"},
      fmt::format("{}: the object store answers {}{}{}{}{}", what, answer.status,
                  code.empty() ? "" : " ", code, message.empty() ? "" : ": ", message)};
  int& number = verdict.problem.error.os_errno;
  const auto is_code = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, code) != names.end();
  };
  if (const auto wait = answer.headers.find("retry-after"); wait != answer.headers.end()) {
    unsigned seconds = 0;
    const std::string& text = wait->second;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    verdict.ordered_pause = std::min(kLongestOrderedPause, Duration(std::chrono::seconds(seconds)));
  }
  verdict.damaged = is_code({"BadDigest", "XAmzContentSHA256Mismatch",
                             "XAmzContentChecksumMismatch", "InvalidDigest", "IncompleteBody"});
  verdict.again =
      verdict.damaged || answer.status == 408 || answer.status == 429 ||
      (answer.status >= 500 && answer.status != 501 && answer.status != 507) ||
      is_code({"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"});
  if (code == "RequestTimeTooSkewed") {
    note_time_of(answer);
    verdict.again = true;
  }
  // The file may have another key by now.
  if (is_code({"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"})) {
    verdict.again = verdict.new_credentials = true;
  }
  if (answer.status == 507 || is_code({"QuotaExceeded", "XMinioStorageFull"})) {
    number = ENOSPC;
  } else if (code == "NoSuchUpload") {
    number = ESTALE;
  } else if (code == "NoSuchBucket") {
    number = ENODEV;
    verdict.problem.text += "; make the bucket, or correct --drain";
  } else if (answer.status == 404) {
    number = ENOENT;
  } else if (answer.status == 412) {
    number = EEXIST;
  } else if (answer.status == 501) {
    number = ENOSYS;
  } else if (answer.status == 416) {
    number = EIO;
  } else if (answer.status == 401 || answer.status == 403) {
    number = EACCES;
    verdict.problem.text += "; look at the rights of the credentials";
  } else if (answer.status == 301 || answer.status == 307) {
    number = EINVAL;
    const auto region = answer.headers.find("x-amz-bucket-region");
    if (region != answer.headers.end()) {
      verdict.problem.text += fmt::format("; the bucket is in the region {}: set AWS_REGION",
                                          shown_text(region->second.substr(0, 32)));
    }
  }
  return verdict;
}

/// Sends the request once. A refused HEAD has no text, so a GET of its first byte asks for the reason.
Outcome<HttpAnswer> S3Sender::attempt(const HttpRequest& request, Time deadline) {
  const auto limit = [&] {
    return std::min<Duration>(deadline - clock_.now(), attempt_limit(request));
  };
  const auto known = credentials();
  if (!known) return problem(known.error());
  if (limit() <= Duration::zero()) {
    return problem(Code::kDeadline, "objects.s3", ETIMEDOUT, "There was no time to ask");
  }
  auto answer = http_.perform(request, *known, limit());
  if (!answer) return answer;
  if (request.is_answered_early) answer->status = final_status(*answer);
  const bool is_refused = answer->status == 400 || answer->status == 403;
  if (request.method != "HEAD" || !is_refused || limit() <= Duration::zero()) return answer;
  HttpRequest why{"GET", request.url, request.headers, {}, {}};
  why.headers.emplace_back("Range: bytes=0-0");
  auto reason = http_.perform(why, *known, limit());
  return reason && reason->status == answer->status ? std::move(reason) : std::move(answer);
}

Outcome<HttpAnswer> S3Sender::send(HttpRequest request, const std::string& what, Time deadline) {
  request.headers.push_back("x-amz-content-sha256: " + sha256_text(request.body));
  BackOff back_off(kFirstPause, kLongestPause);
  int damaged = 0;
  int refreshed = 0;
  Problem last{{Code::kDeadline, ETIMEDOUT, "objects.s3"}, what + ": there was no time to ask"};
  for (;;) {
    const Duration left = deadline - clock_.now();
    if (left <= Duration::zero()) break;
    auto answer = attempt(request, deadline);
    Duration ordered{};
    if (!answer) {
      const Code code = answer.error().error.code;
      if (code != Code::kPeerLost && code != Code::kDeadline) return answer;
      last = {answer.error().error, fmt::format("{}: {}", what, answer.error().text)};
    } else if (answer->status / 100 == 2) {
      return answer;
    } else {
      Verdict verdict = judge(*answer, what);
      if (!verdict.again) return problem(std::move(verdict.problem));
      last = std::move(verdict.problem);
      ordered = verdict.ordered_pause;
      if (verdict.damaged && ++damaged == S3Store::kDamagedMax) {
        last.error.os_errno = EILSEQ;
        return problem(std::move(last));
      }
      if (verdict.new_credentials) {
        if (++refreshed > 1) {
          last.error.os_errno = EACCES;
          return problem(std::move(last));
        }
        if (auto fresh = use_fresh_credentials(); !fresh) return problem(fresh.error());
      }
    }
    log::debug("{}", last.text);
    // An order to wait is the same for all members, so each adds its random part.
    if (auto paused = pause(ordered + with_jitter(back_off.next()), deadline); !paused) {
      return problem(paused.error());
    }
  }
  last.error.code = Code::kDeadline;
  last.text += "; this was repeated until the deadline";
  return problem(std::move(last));
}

}  // namespace stdchk
