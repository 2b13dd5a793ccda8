#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/problem.h"

namespace stdchk {

/// S3's limit of an object's key.
inline constexpr std::size_t kKeyBytesMax = 1024;

/// Returns true when `drain`, the drain directory of a pool, names an object store.
inline bool is_object_store(std::string_view drain) { return drain.starts_with("s3:"); }

/// An ObjectPlace says where a pool's objects are. Its text is
/// `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`. The manager sends the text to the other members.
///
/// Not: credentials. Each process finds its own (find_credentials()).
struct ObjectPlace {
  std::string bucket;
  std::string prefix;    ///< without a slash at its ends; empty: the whole bucket
  std::string endpoint;  ///< for example https://minio.site:9000; empty: Amazon's of the region
  std::string region;    ///< never empty

  /// Reads `s3://BUCKET[/PREFIX][?endpoint=URL][&region=NAME]`. An endpoint or a region that the
  /// text does not name comes from AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION and
  /// AWS_DEFAULT_REGION, otherwise us-east-1.
  static Outcome<ObjectPlace> parse(std::string_view text);
  /// Reads `text`, and uses `endpoint` unless it is empty or the text names one.
  static Outcome<ObjectPlace> with_endpoint(std::string_view text, const std::string& endpoint);
  /// Returns the text with endpoint and region.
  std::string text() const;
  /// Returns `s3://BUCKET/PREFIX`, for people.
  std::string name() const;

  /// Returns the key of the object of the file `path`.
  std::string key_of(std::string_view path) const;
  /// Returns the URL of an object, without a query. An empty key means the bucket.
  std::string url_of(std::string_view key) const;
};

/// Returns true for the path of a file below a folder: relative, in normal form, and of names that a pool
/// can have. Keys of objects may be other texts.
bool is_file_path(std::string_view path);

/// Returns a drain directory as people write it: an object store without endpoint and region.
std::string drain_name(const std::string& drain);

/// Returns `text` with each byte but letters, digits and "-._~" as %XX (RFC 3986). A slash stays
/// with `keeps_slash`.
std::string percent_encoded(std::string_view text, bool keeps_slash = false);
/// Reverts percent_encoded(). An invalid sequence stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace stdchk
