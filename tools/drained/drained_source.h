#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/files/data_ranges.h"
#include "core/files/drain_folder.h"
#include "core/values/types.h"
#include "tools/base/problem.h"
#include "tools/drained/manifest.h"

namespace stdchk::tools {

/// A SourceFile is an open regular file of a DrainedSource. It stays the file that was opened, or reads
/// fail.
///
/// Threads: one.
class SourceFile {
 public:
  virtual ~SourceFile() = default;
  virtual const struct stat& status() const = 0;
  /// Returns the bytes [offset, offset + length). Fewer: the file ends before. ESTALE: another file has
  /// taken its place.
  virtual Outcome<std::vector<std::byte>> read(std::uint64_t offset, std::size_t length) const = 0;
  /// As next_data() of core/files.
  virtual std::optional<DataRange> next_data(std::uint64_t from, std::uint64_t to) const = 0;
  /// Returns true when its path still names the same, unchanged file. Error: that cannot be found out.
  virtual Outcome<bool> is_unchanged() const = 0;
};

/// A DrainedSource is a tree of drained files: a folder of a drain directory, or a prefix of an object
/// store.
///
/// Paths are relative to it, without "." and "..". No link is followed.
///
/// Threads: any. Errors: ENOENT: nothing has that path.
class DrainedSource {
 public:
  /// The differences between directories and object stores.
  struct Traits {
    /// Bytes of a read in a file without checksums.
    std::size_t read_bytes = 0;
    /// Long runs of zeros were holes: the storage cannot tell.
    bool zeros_are_holes = false;
    /// Reads are slow enough to look first for the bytes in the pool.
    bool is_slow = false;
    /// Times that a range is read whose bytes differ from their checksum.
    int reads_max = 1;
    std::string checksums;  ///< where the checksums are, for messages
    std::string unlisted;   ///< why a file has none, for messages
  };

  virtual ~DrainedSource() = default;
  virtual const Traits& traits() const = 0;
  /// Lists what lies there, as read_tree() does.
  virtual Outcome<DrainedTree> tree() const = 0;
  /// Returns the status of a file, link or folder. The empty path is the source itself.
  virtual Outcome<struct stat> status(const std::string& path) const = 0;
  virtual Outcome<FoundLink> link(const std::string& path) const = 0;
  virtual Outcome<std::unique_ptr<SourceFile>> open(const std::string& path) const = 0;
  /// Returns the text of the policy of a folder; the empty path is the source itself.
  virtual Outcome<std::string> policy_text(const std::string& folder) const = 0;
  /// Returns the texts of the policies of the folders above the source, from the outermost.
  virtual std::vector<std::string> policies_above() const = 0;
  /// Returns the path of the source below the drain directory `drain` of a pool. Empty: it is that
  /// place itself, or lies elsewhere.
  virtual std::string place_in(const std::string& drain) const = 0;
  /// Returns true when the path `drained` in the drain directory `drain` is the file `path`.
  virtual bool is_drained_as(const std::string& path, const std::string& drain,
                             const std::string& drained) const = 0;
};

/// Opens a folder of a drain directory, or the object store that `path` names. `endpoint` is that of the
/// object store, and `requests` the number of its requests at once.
Outcome<std::unique_ptr<DrainedSource>> open_drained_source(const std::string& path,
                                                            const std::string& endpoint,
                                                            std::uint32_t requests);

}  // namespace stdchk::tools
