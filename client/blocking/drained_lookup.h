#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/api/filesystem.h"

namespace stdchk::client {

/// A file whose newest version is not in the drain directory as it was drained.
struct UnsafeFile {
  std::string path;
  FileId file;
  bool missing = false;  ///< others have removed or changed the drained file
};

/// An Evicted says how to treat drained files without bytes in memory, as all files of a new pool.
enum class Evicted : std::uint8_t {
  kIsBelieved,  ///< the right size, time and owner are enough
  kIsCompared,  ///< with checksums, once; the answer may be kBusy meanwhile
};

/// A DrainedLookup asks the pool in batches which files are in the drain directory. The pool drains
/// missing files again.
///
/// Owns: one batch of at most limits::kDrainChecksMax files. Threads: one.
class DrainedLookup {
 public:
  using OnUnsafe = std::function<void(UnsafeFile)>;

  /// Calls `on_unsafe` during add() and finish().
  DrainedLookup(Filesystem& filesystem, Evicted evicted, OnUnsafe on_unsafe)
      : filesystem_(filesystem), evicted_(evicted), on_unsafe_(std::move(on_unsafe)) {}

  /// Adds a regular file. Asks the pool when the batch is full.
  Status add(std::string path, FileId file);
  /// Asks the pool for the files of the last batch.
  Status finish();
  /// Returns how many files were added.
  std::uint64_t files() const { return files_; }

 private:
  Filesystem& filesystem_;
  Evicted evicted_;
  OnUnsafe on_unsafe_;
  std::vector<UnsafeFile> batch_;
  std::uint64_t files_ = 0;
};

}  // namespace stdchk::client
