#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/problem.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A DrainedBytes is the content of a drained file, opened. It stays the same content whatever
/// happens to the file's name: a read fails when the content is gone.
///
/// Threads: any; reads block.
class DrainedBytes {
 public:
  virtual ~DrainedBytes() = default;
  /// Fills `out` with the bytes from `offset` on. kCorrupt: the content ends before.
  virtual Status read(std::uint64_t offset, MutableByteSpan out) const = 0;
};

/// A DrainedStorage is where a pool's drained files are: a directory or an object store.
///
/// Threads: any; calls block.
/// Errors: ENOENT: there is no such file.
class DrainedStorage {
 public:
  virtual ~DrainedStorage() = default;
  /// Opens the file `path`, if it may belong to the pool's user `owner`. An object store has no
  /// owners: who may write there is the store's matter.
  virtual Outcome<std::unique_ptr<DrainedBytes>> open(const std::string& path,
                                                      std::uint32_t owner) = 0;
};

/// Makes the storage of a pool's drain directory, or of the object store that it names. Does not
/// block: absent credentials are an error of each open().
std::shared_ptr<DrainedStorage> make_drained_storage(const std::string& drain_directory);

}  // namespace stdchk::client
