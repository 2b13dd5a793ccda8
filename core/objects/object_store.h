#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/problem.h"
#include "core/values/types.h"

namespace stdchk {

/// The attributes that an object keeps: names of small letters, digits and hyphens, and values of
/// printable ASCII. At most 2 KiB in all.
using ObjectMetadata = std::map<std::string, std::string>;

/// An ObjectStore holds objects: each has a key, bytes and metadata, and is replaced as a whole.
///
/// A key has at most kKeyBytesMax bytes, and no zero byte. Keys include the prefix of the pool.
///
/// Threads: any; calls block, at most until their deadline, so a reactor does not make them.
/// Errors: a Problem. ENOENT: there is no such object. EEXIST: a Condition does not hold. ENOSYS: the
///   store has no such function. ESTALE: there is no such upload. EACCES: the store refuses the
///   credentials. EILSEQ: the bytes differ from their checksum. kDeadline: no answer in time; the
///   store may still carry the request out.
/// Not: renames, and changes of parts of an object. No object store has these.
class ObjectStore {
 public:
  static constexpr std::uint64_t kPartBytesMin = std::uint64_t{5} << 20;
  static constexpr std::uint32_t kPartsMax = 10'000;
  static constexpr std::uint64_t kCopyBytesMax = std::uint64_t{5} << 30;  ///< in one call
  static constexpr std::uint64_t kObjectBytesMax = std::uint64_t{5} << 40;

  struct Found {
    std::uint64_t size_bytes = 0;
    std::string etag;            ///< changes with the bytes
    std::int64_t changed_s = 0;  ///< time of the last change, seconds since 1970, store's clock
    ObjectMetadata metadata;
  };
  struct Listed {
    std::string key;
    std::uint64_t size_bytes = 0;
  };
  /// A Page is a part of a listing, in the order of the keys. `next` is empty at the end.
  struct Page {
    std::vector<Listed> objects;
    std::string next;
  };
  struct Part {
    std::uint32_t number = 0;  ///< from 1
    std::string etag;
    std::uint64_t size_bytes = 0;
    std::string checksum;  ///< as the store writes it; empty: it keeps none
  };
  struct Upload {
    std::string key;
    std::string id;
  };
  /// A Condition is compared with the object before the bytes replace it.
  struct Condition {
    bool is_absent = false;
    std::string etag;  ///< empty: any
  };
  struct Range {
    std::uint64_t offset = 0;
    MutableByteSpan to;
    std::string etag = {};  ///< wanted etag; another etag is EEXIST; empty: any
  };

  virtual ~ObjectStore() = default;

  /// Makes or replaces an object. Returns its etag.
  virtual Outcome<std::string> put(const std::string& key, ByteSpan bytes,
                                   const ObjectMetadata& metadata, const Condition& condition,
                                   Time deadline) = 0;
  /// Fills `range.to`. An object that ends before is EIO.
  virtual Outcome<void> get(const std::string& key, const Range& range, Time deadline) = 0;
  virtual Outcome<Found> find(const std::string& key, Time deadline) = 0;
  /// Removes an object. An absent object is no error.
  virtual Outcome<void> remove(const std::string& key, Time deadline) = 0;
  /// Lists the keys that begin with `prefix`. `from` is `next` of the page before.
  virtual Outcome<Page> list(const std::string& prefix, const std::string& from, Time deadline) = 0;
  /// Copies an object of at most kCopyBytesMax bytes within the store, with other metadata. Without
  /// `metadata`, the copy keeps those of the object.
  virtual Outcome<void> copy(const std::string& from, const std::string& to,
                             const std::optional<ObjectMetadata>& metadata, Time deadline) = 0;

  /// Begins an object that is uploaded in parts. Each part but the last has at least kPartBytesMin
  /// bytes. Returns the id of the upload.
  virtual Outcome<std::string> begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                            Time deadline) = 0;
  virtual Outcome<Part> upload_part(const Upload& upload, std::uint32_t number, ByteSpan bytes,
                                    Time deadline) = 0;
  /// Makes the object visible. `parts` are in the order of their numbers.
  virtual Outcome<void> complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                        Time deadline) = 0;
  /// Ends an upload. Its parts cost no space any more.
  virtual Outcome<void> abort_upload(const Upload& upload, Time deadline) = 0;
  /// Lists uploads that were begun, and neither completed nor ended, of keys below `prefix`.
  virtual Outcome<std::vector<Upload>> uploads(const std::string& prefix, Time deadline) = 0;
  virtual Outcome<std::vector<Part>> parts(const Upload& upload, Time deadline) = 0;
};

/// Reads all of an object of at most `bytes_max` bytes.
Outcome<std::string> get_text(ObjectStore& store, const std::string& key, std::uint64_t bytes_max,
                              Time deadline);
/// Calls `visit` for each object whose key begins with `prefix`, until it returns false.
Outcome<void> each_object(ObjectStore& store, const std::string& prefix, Time deadline,
                          const std::function<bool(const ObjectStore::Listed&)>& visit);
/// Like each_object() above. Each page of the listing gets a new deadline, because a listing may have any length.
Outcome<void> each_object(ObjectStore& store, const std::string& prefix,
                          const std::function<Time()>& deadline_of_page,
                          const std::function<bool(const ObjectStore::Listed&)>& visit);

/// Returns true for an error that says that the object is absent.
inline bool is_absent(const Problem& problem) { return problem.error.os_errno == ENOENT; }

}  // namespace stdchk
