#include "core/objects/s3_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <initializer_list>
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

/// A copy and a completion answer 200 before they are done. An error comes in the text then.
Outcome<void> check_text(const HttpAnswer& answer, const std::string& what) {
  const auto code = xml_text(answer.text, "Code");
  if (!code) return {};
  const int number = *code == "NoSuchUpload" ? ESTALE : EIO;
  return problem(Code::kSystem, "objects.s3", number,
                 fmt::format("{}: the object store answers {}: {}", what, *code,
                             xml_text(answer.text, "Message").value_or("").substr(0, 200)));
}

}  // namespace

struct S3Store::Parts {
  Parts(ObjectPlace of, Credentials credentials, const Clock& clock, std::function<bool()> stopped)
      : place(std::move(of)),
        sender(place.region, std::move(credentials), clock, std::move(stopped)) {}

  std::string name_of(std::string_view key) const {
    return fmt::format("s3://{}/{}", place.bucket, key);
  }
  Outcome<HttpAnswer> send(HttpRequest request, std::string_view key, const std::string& query,
                           Time deadline) {
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
  const bool is_right_range = answer->status == 206 || range.offset == 0;
  if (answer->received_bytes == range.to.size() && is_right_range) return {};
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
  const auto answer = of_->send({"GET", {}, {}, {}, {}}, "", query, deadline);
  if (!answer) return problem(answer.error());
  Page page;
  for (const std::string_view element : xml_elements(answer->text, "Contents")) {
    const auto key = xml_text(element, "Key");
    if (!key) return malformed(of_->name_of(prefix));
    page.objects.push_back(
        {percent_decoded(*key), number_of(xml_text(element, "Size").value_or(""))});
  }
  if (xml_text(answer->text, "IsTruncated") == "true") {
    page.next = xml_text(answer->text, "NextContinuationToken").value_or("");
    if (page.next.empty()) return malformed(of_->name_of(prefix));
  }
  return page;
}

Outcome<void> S3Store::copy(const std::string& from, const std::string& to,
                            const ObjectMetadata& metadata, Time deadline) {
  HttpRequest request{"PUT", {}, {}, {}, {}};
  request.headers.push_back(
      fmt::format("x-amz-copy-source: /{}/{}", of_->place.bucket, percent_encoded(from, true)));
  request.headers.emplace_back("x-amz-metadata-directive: REPLACE");
  add_metadata(metadata, request);
  const auto answer = of_->send(std::move(request), to, "", deadline);
  if (!answer) return problem(answer.error());
  return check_text(*answer, of_->name_of(to));
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
  HttpRequest request{"POST", {}, {}, bytes_of(body), {}};
  request.headers.emplace_back("Content-Type: application/xml");
  const auto answer =
      of_->send(std::move(request), upload.key, query_text({{"uploadId", upload.id}}), deadline);
  if (!answer) return problem(answer.error());
  return check_text(*answer, of_->name_of(upload.key));
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
    const auto answer = of_->send({"GET", {}, {}, {}, {}}, "",
                                  query_text({{"encoding-type", "url"},
                                              {"key-marker", key_marker},
                                              {"prefix", prefix},
                                              {"upload-id-marker", id_marker},
                                              {"uploads", ""}}),
                                  deadline);
    if (!answer) return problem(answer.error());
    for (const std::string_view element : xml_elements(answer->text, "Upload")) {
      const auto key = xml_text(element, "Key");
      auto id = xml_text(element, "UploadId");
      if (!key || !id) return malformed(of_->name_of(prefix));
      out.push_back({percent_decoded(*key), std::move(*id)});
    }
    if (xml_text(answer->text, "IsTruncated") != "true") return out;
    std::string next = percent_decoded(xml_text(answer->text, "NextKeyMarker").value_or(""));
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
