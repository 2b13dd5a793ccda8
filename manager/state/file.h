#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/policy/set_naming.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/slices.h"

namespace stdchk::manager {

/// A committed content of a file.
struct VersionData {
  Version version = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t stored_bytes = 0;  ///< bytes that its slices cover
  std::int64_t mtime_ns = 0;
  /// Orders the commits of the pool; an image that gets its name counts as committed then. Unnamed
  /// files' versions get no number of their own.
  std::uint64_t sequence = 0;
  /// The commit that wrote the content from nothing; later ones changed parts.
  std::uint64_t written = 0;
  std::uint64_t opened = 0;  ///< newest commit of the pool when its session was opened
  bool drained = false;
  bool evicted = false;  ///< memory has lost all its chunks
  /// A member of a set that its writer has stored by fsync, and not closed. It may be a part only.
  bool partial = false;
  NamingState naming = NamingState::kUnknown;
  std::uint32_t pins = 0;
  std::uint32_t copies = 1;  ///< a packed Redundancy, for each chunk
  /// Not 0: number under which the drain directory has its bytes, because another file took the
  /// name. 0: the bytes have the file's name there. The journal keeps it while the version
  /// waits for its drain.
  std::uint64_t aside = 0;
  /// The drain directory has the whole version under `aside`. Its drain only gives it its name.
  bool staged = false;
  PackedSlices slices;

  /// The commit that wrote the content. 0 for a version without bytes, in memory or drained: a
  /// length alone is no content.
  std::uint64_t content() const {
    return stored_bytes > 0 || (evicted && size_bytes > 0) ? written : 0;
  }
};

/// A name that is taken but not committed. Only the clients in `viewers` see it.
struct PendingName {
  FileId parent;
  std::string name;
  std::vector<ClientId> viewers;
};

/// The rules of sets that a directory sets itself.
struct OwnRules {
  std::optional<bool> by_directory;
  std::optional<std::string> set_names;
  std::optional<std::string> marker;
  std::optional<std::string> pointer;
  std::optional<SetNaming> series;
};

/// A further name of a file: a hard link.
struct Link {
  FileId parent;
  std::string name;
  bool in_drain = false;        ///< as in File
  bool stale_in_drain = false;  ///< as in File
};

/// The state that only a directory has.
struct Directory {
  std::map<std::string, FileId, std::less<>> children;
  std::map<std::string, FileId, std::less<>> pending_children;
  std::uint32_t subdirectories = 0;
  Policy policy;  ///< the settings made in this directory
  /// The rules of sets in its extended attributes. Null: the directory has none.
  std::shared_ptr<const OwnRules> rules;
  /// Sets of this directory that are whole in the drain directory, the oldest first. At most
  /// limits::kDrainedSetsMax. The link in the drain directory names the last of them; without sets
  /// there is no link.
  std::vector<DrainedSet> drained_sets;
};

/// A file, directory, symbolic link, or special file.
struct File {
  FileId id;
  FileType type = FileType::kRegular;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t atime_ns = 0;
  std::int64_t ctime_ns = 0;
  FileId parent;  ///< none: the file has no committed name
  /// The first name. Paths, policies and the drain use it.
  std::string name;
  std::vector<Link> links;   ///< further names; none without a first name
  std::uint32_t device = 0;  ///< of a device: its number
  bool in_drain = false;     ///< the drain directory may have this file under its name
  /// Under its name the drain directory has another file's old content.
  bool stale_in_drain = false;
  /// Sessions and pins; while above 0, it stays in memory without a name.
  std::uint32_t keeps = 0;
  std::string target;  ///< of a symbolic link
  std::map<std::string, std::string> xattrs;
  Directory as_directory;  ///< empty unless the type is kDirectory
  std::unique_ptr<PendingName> pending;
  VersionData newest;
  std::map<Version, VersionData> older;  ///< pinned versions only
};

struct BenefactorRecord {
  BenefactorId id;
  std::uint64_t life_high = 0;
  std::uint64_t life_low = 0;
  std::uint64_t arena_bytes = 0;
  std::string host_name;
};

/// The files that a command has affected.
struct Affected {
  FileId file;      ///< made, changed or removed
  FileId replaced;  ///< lost its name to another file
};

}  // namespace stdchk::manager
