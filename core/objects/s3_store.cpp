#include "core/objects/s3_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "core/objects/credentials.h"
#include "core/objects/curl_library.h"
#include "core/objects/s3_request.h"
#include "core/objects/xml_text.h"

namespace stdchk {
namespace {

constexpr std::string_view kMetadataHeader = "x-amz-meta-";
constexpr std::size_t kListedMax = 1000;

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::uint64_t number_of(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string header_of(const HttpAnswer& answer, const std::string& name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? std::string() : found->second;
}

using Query = std::initializer_list<std::pair<std::string_view, std::string>>;

/// Makes the query. The signature of old versions of libcurl covers the query as it is, so the names
/// must come in order, and each has a "=".
std::string query_text(Query query) {
  std::string out;
  for (const auto& [name, value] : query) {
    out += fmt::format("{}{}={}", out.empty() ? '?' : '&', name, percent_encoded(value));
  }
  return out;
}

void add_metadata(const ObjectMetadata& metadata, HttpRequest& to) {
  for (const auto& [name, value] : metadata) {
    to.headers.push_back(fmt::format("{}{}: {}", kMetadataHeader, name, value));
  }
}

tl::unexpected<Problem> malformed(const std::string& what) {
  return problem(Code::kMalformed, "objects.s3", EPROTO,
                 fmt::format("{}: the answer of the object store cannot be understood", what));
}

/// Returns the key of an element of a listing; nothing for a key without `prefix`. A store that
/// knows `encoding-type=url` says so, and writes a blank as "+".
std::optional<std::string> listed_key(std::string_view element, std::string_view name,
                                      bool is_encoded, const std::string& prefix) {
  auto key = xml_text(element, name);
  if (!key) return std::nullopt;
  if (is_encoded) {
    std::ranges::replace(*key, '+', ' ');
    key = percent_decoded(*key);
  }
  return key->starts_with(prefix) ? key : std::nullopt;
}

bool is_encoded(const HttpAnswer& answer) {
  return xml_text(answer.text, "EncodingType").value_or("") == "url";
}

/// Returns true if the answer has the bytes from `offset` on, and of the version that was wanted.
bool is_of_range(const HttpAnswer& answer, const ObjectStore::Range& range) {
  if (answer.status != 206) return range.offset == 0;
  const std::string said = header_of(answer, "content-range");
  return said.empty() || said.starts_with(fmt::format("bytes {}-", range.offset));
}

}  // namespace

struct S3Store::Parts {
  Parts(ObjectPlace of, Credentials credentials, const Clock& clock, std::function<bool()> stopped)
      : place(std::move(of)),
        sender(place.region, std::move(credentials), clock, std::move(stopped)) {}

  std::string name_of(std::string_view key) const {
    return fmt::format("s3://{}/{}", place.bucket, key);
  }
  /// Asks for the bucket.
  Outcome<HttpAnswer> send(HttpRequest request, const std::string& query, Time deadline) {
    request.url = place.url_of("") + query;
    return sender.send(std::move(request), place.name(), deadline);
  }
  Outcome<HttpAnswer> send(HttpRequest request, std::string_view key, const std::string& query,
                           Time deadline) {
    // A request without a key would concern the whole bucket.
    if (key.empty()) {
      return problem(Code::kInvalidArgument, "objects.s3", EINVAL, "An object has a name");
    }
    if (key.size() > kKeyBytesMax) {
      return problem(Code::kNameTooLong, "objects.s3", ENAMETOOLONG,
                     fmt::format("{}: the name of an object has at most {} bytes", name_of(key),
                                 kKeyBytesMax));
    }
    request.url = place.url_of(key) + query;
    return sender.send(std::move(request), name_of(key), deadline);
  }

  const ObjectPlace place;
  S3Sender sender;
};

S3Store::S3Store(std::unique_ptr<Parts> parts) : of_(std::move(parts)) {}
S3Store::~S3Store() = default;

Outcome<std::unique_ptr<ObjectStore>> S3Store::open(ObjectPlace place, const Clock& clock,
                                                    std::function<bool()> stopped) {
  if (const auto curl = CurlLibrary::load(); !curl) return problem(curl.error());
  auto credentials = find_credentials();
  if (!credentials) return problem(credentials.error());
  return std::unique_ptr<ObjectStore>(new S3Store(std::make_unique<Parts>(
      std::move(place), std::move(*credentials), clock, std::move(stopped))));
}

Outcome<std::string> S3Store::put(const std::string& key, ByteSpan bytes,
                                  const ObjectMetadata& metadata, const Condition& condition,
                                  Time deadline) {
  HttpRequest request{"PUT", {}, {}, bytes, {}};
  request.headers.push_back("x-amz-checksum-crc32c: " + crc_header_value(bytes));
  add_metadata(metadata, request);
  if (condition.is_absent) request.headers.emplace_back("If-None-Match: *");
  if (!condition.etag.empty()) request.headers.push_back("If-Match: " + condition.etag);
  const auto answer = of_->send(std::move(request), key, "", deadline);
  if (!answer) return problem(answer.error());
  return header_of(*answer, "etag");
}

Outcome<void> S3Store::get(const std::string& key, const Range& range, Time deadline) {
  if (range.to.empty()) return {};
  HttpRequest request{"GET", {}, {}, {}, range.to};
  request.headers.push_back(
      fmt::format("Range: bytes={}-{}", range.offset, range.offset + range.to.size() - 1));
  if (!range.etag.empty()) request.headers.push_back("If-Match: " + range.etag);
  const auto answer = of_->send(std::move(request), key, "", deadline);
  if (!answer) return problem(answer.error());
  // A store that does not know the condition sends the bytes of another version.
  const std::string etag = header_of(*answer, "etag");
  if (!range.etag.empty() && !etag.empty() && etag != range.etag) {
    return problem(Code::kSystem, "objects.s3", EEXIST,
                   fmt::format("{} was replaced", of_->name_of(key)));
  }
  if (!is_of_range(*answer, range)) {
    return problem(Code::kSystem, "objects.s3", EIO,
                   fmt::format("{}: the object store sends another range than the bytes from {} on",
                               of_->name_of(key), range.offset));
  }
  if (answer->received_bytes == range.to.size()) return {};
  return problem(Code::kSystem, "objects.s3", EIO,
                 fmt::format("{} has {} bytes at {} instead of {}", of_->name_of(key),
                             answer->received_bytes, range.offset, range.to.size()));
}

Outcome<ObjectStore::Found> S3Store::find(const std::string& key, Time deadline) {
  const auto answer = of_->send({"HEAD", {}, {}, {}, {}}, key, "", deadline);
  if (!answer) return problem(answer.error());
  Found found;
  found.size_bytes = number_of(header_of(*answer, "content-length"));
  found.etag = header_of(*answer, "etag");
  std::tm fields{};
  if (::strptime(header_of(*answer, "last-modified").c_str(), "%a, %d %b %Y %H:%M:%S GMT",
                 &fields) != nullptr) {
    found.changed_s = ::timegm(&fields);
  }
  for (const auto& [name, value] : answer->headers) {
    if (name.starts_with(kMetadataHeader)) {
      found.metadata[name.substr(kMetadataHeader.size())] = value;
    }
  }
  return found;
}

Outcome<void> S3Store::remove(const std::string& key, Time deadline) {
  const auto answer = of_->send({"DELETE", {}, {}, {}, {}}, key, "", deadline);
  if (!answer && !is_absent(answer.error())) return problem(answer.error());
  return {};
}

Outcome<ObjectStore::Page> S3Store::list(const std::string& prefix, const std::string& from,
                                         Time deadline) {
  const std::string count = std::to_string(kListedMax);
  const std::string query = from.empty() ? query_text({{"encoding-type", "url"},
                                                       {"list-type", "2"},
                                                       {"max-keys", count},
                                                       {"prefix", prefix}})
                                         : query_text({{"continuation-token", from},
                                                       {"encoding-type", "url"},
                                                       {"list-type", "2"},
                                                       {"max-keys", count},
                                                       {"prefix", prefix}});
  const auto answer = of_->send({"GET", {}, {}, {}, {}}, query, deadline);
  if (!answer) return problem(answer.error());
  Page page;
  const bool encoded = is_encoded(*answer);
  for (const std::string_view element : xml_elements(answer->text, "Contents")) {
    auto key = listed_key(element, "Key", encoded, prefix);
    if (!key) return malformed(of_->name_of(prefix));
    page.objects.push_back({std::move(*key), number_of(xml_text(element, "Size").value_or(""))});
  }
  if (xml_text(answer->text, "IsTruncated") == "true") {
    page.next = xml_text(answer->text, "NextContinuationToken").value_or("");
    if (page.next.empty() || page.next == from) return malformed(of_->name_of(prefix));
  }
  return page;
}

Outcome<void> S3Store::copy(const std::string& from, const std::string& to,
                            const std::optional<ObjectMetadata>& metadata, Time deadline) {
  HttpRequest request{"PUT", {}, {}, {}, {}, true};
  request.headers.push_back(
      fmt::format("x-amz-copy-source: /{}/{}", of_->place.bucket, percent_encoded(from, true)));
  request.headers.push_back(std::string("x-amz-metadata-directive: ") +
                            (metadata ? "REPLACE" : "COPY"));
  if (metadata) add_metadata(*metadata, request);
  const auto answer = of_->send(std::move(request), to, "", deadline);
  return answer ? Outcome<void>() : problem(answer.error());
}

Outcome<std::string> S3Store::begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                           Time deadline) {
  HttpRequest request{"POST", {}, {}, {}, {}};
  request.headers.emplace_back("Content-Type: application/octet-stream");
  request.headers.emplace_back("x-amz-checksum-algorithm: CRC32C");
  add_metadata(metadata, request);
  const auto answer = of_->send(std::move(request), key, query_text({{"uploads", ""}}), deadline);
  if (!answer) return problem(answer.error());
  auto id = xml_text(answer->text, "UploadId");
  if (!id || id->empty()) return malformed(of_->name_of(key));
  return std::move(*id);
}

Outcome<ObjectStore::Part> S3Store::upload_part(const Upload& upload, std::uint32_t number,
                                                ByteSpan bytes, Time deadline) {
  HttpRequest request{"PUT", {}, {}, bytes, {}};
  Part part{number, {}, bytes.size(), crc_header_value(bytes)};
  request.headers.push_back("x-amz-checksum-crc32c: " + part.checksum);
  const auto answer = of_->send(
      std::move(request), upload.key,
      query_text({{"partNumber", std::to_string(number)}, {"uploadId", upload.id}}), deadline);
  if (!answer) return problem(answer.error());
  part.etag = header_of(*answer, "etag");
  if (part.etag.empty()) return malformed(of_->name_of(upload.key));
  return part;
}

Outcome<void> S3Store::complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                       Time deadline) {
  std::string body = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const Part& part : parts) {
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", part.number,
                        xml_escaped(part.etag));
    if (!part.checksum.empty()) {
      body += fmt::format("<ChecksumCRC32C>{}</ChecksumCRC32C>", xml_escaped(part.checksum));
    }
    body += "</Part>";
  }
  body += "</CompleteMultipartUpload>";
  HttpRequest request{"POST", {}, {}, bytes_of(body), {}, true};
  request.headers.emplace_back("Content-Type: application/xml");
  const auto answer =
      of_->send(std::move(request), upload.key, query_text({{"uploadId", upload.id}}), deadline);
  return answer ? Outcome<void>() : problem(answer.error());
}

Outcome<void> S3Store::abort_upload(const Upload& upload, Time deadline) {
  const auto answer = of_->send({"DELETE", {}, {}, {}, {}}, upload.key,
                                query_text({{"uploadId", upload.id}}), deadline);
  if (answer || answer.error().error.os_errno == ESTALE || is_absent(answer.error())) return {};
  return problem(answer.error());
}

Outcome<std::vector<ObjectStore::Upload>> S3Store::uploads(const std::string& prefix,
                                                           Time deadline) {
  std::vector<Upload> out;
  std::string key_marker;
  std::string id_marker;
  for (;;) {
    const auto answer = of_->send({"GET", {}, {}, {}, {}},
                                  query_text({{"encoding-type", "url"},
                                              {"key-marker", key_marker},
                                              {"prefix", prefix},
                                              {"upload-id-marker", id_marker},
                                              {"uploads", ""}}),
                                  deadline);
    if (!answer) return problem(answer.error());
    const bool encoded = is_encoded(*answer);
    for (const std::string_view element : xml_elements(answer->text, "Upload")) {
      auto key = listed_key(element, "Key", encoded, prefix);
      auto id = xml_text(element, "UploadId");
      if (!id) return malformed(of_->name_of(prefix));
      // Some stores ignore the prefix: the uploads of others are no concern of this pool.
      if (key) out.push_back({std::move(*key), std::move(*id)});
    }
    if (xml_text(answer->text, "IsTruncated") != "true") return out;
    std::string next = listed_key(answer->text, "NextKeyMarker", encoded, "").value_or("");
    std::string next_id = xml_text(answer->text, "NextUploadIdMarker").value_or("");
    if (next == key_marker && next_id == id_marker) return malformed(of_->name_of(prefix));
    key_marker = std::move(next);
    id_marker = std::move(next_id);
  }
}

Outcome<std::vector<ObjectStore::Part>> S3Store::parts(const Upload& upload, Time deadline) {
  std::vector<Part> out;
  std::string marker;
  for (;;) {
    const std::string query =
        marker.empty() ? query_text({{"uploadId", upload.id}})
                       : query_text({{"part-number-marker", marker}, {"uploadId", upload.id}});
    const auto answer = of_->send({"GET", {}, {}, {}, {}}, upload.key, query, deadline);
    if (!answer) return problem(answer.error());
    for (const std::string_view element : xml_elements(answer->text, "Part")) {
      Part part;
      part.number = static_cast<std::uint32_t>(std::min<std::uint64_t>(
          number_of(xml_text(element, "PartNumber").value_or("")), kPartsMax));
      part.etag = xml_text(element, "ETag").value_or("");
      part.size_bytes = number_of(xml_text(element, "Size").value_or(""));
      part.checksum = xml_text(element, "ChecksumCRC32C").value_or("");
      out.push_back(std::move(part));
    }
    if (xml_text(answer->text, "IsTruncated") != "true") return out;
    std::string next = xml_text(answer->text, "NextPartNumberMarker").value_or("");
    if (next.empty() || next == marker) return malformed(of_->name_of(upload.key));
    marker = std::move(next);
  }
}

}  // namespace stdchk
