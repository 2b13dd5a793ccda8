#pragma once

#include <cstdint>

namespace stdchk::manager {

/// A FileFingerprint says whether a drained file is still the file that was looked at. Each change
/// of its bytes, attributes or names changes the fingerprint. A copy with equal size and times has
/// another one.
struct FileFingerprint {
  std::uint64_t inode = 0;
  std::int64_t ctime_ns = 0;  ///< stat(2), st_ctim
  bool is_known() const { return inode != 0; }
  bool operator==(const FileFingerprint&) const = default;
};

}  // namespace stdchk::manager
