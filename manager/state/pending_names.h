#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/values/types.h"
#include "manager/state/file_table.h"

namespace stdchk::manager {

/// A PendingNames changes the names of a FileTable that are taken but not committed. The journal
/// lacks pending names, so a restarted manager starts without them.
///
/// Owns: nothing; the table outlives it. Threads: one. Errors: a call that fails changes nothing.
class PendingNames {
 public:
  explicit PendingNames(FileTable& files) : files_(files) {}

  /// Adds a file with a pending name, which `viewer` sees.
  Result<const File*> make(FileId id, const NewName& name, ClientId viewer, std::int64_t now_ns);
  /// Adds a file without a name. `name.parent`, if there is one, gives it its access list.
  void make_unnamed(FileId id, const NewName& name, std::int64_t now_ns);
  /// Gives a file without a name and without a version a pending name, which `viewer` sees. Errors:
  /// kExists, also for a name that only another client sees.
  Status give_name(FileId id, FileId parent, const std::string& name, ClientId viewer);
  void join(FileId id, ClientId viewer);
  void leave(FileId id, ClientId viewer);
  Status rename(FileId id, FileId to_parent, std::string_view to_name);
  void drop(FileId id);
  /// Returns what the first commit of a pending file has to create; nothing when it has no pending
  /// name.
  std::optional<NewName> new_name(FileId id) const;

 private:
  Status check_pending(const File& directory, const std::string& name, const char* where) const;
  static void add(File& directory, const std::string& name, File& file, ClientId viewer);

  FileTable& files_;
};

}  // namespace stdchk::manager
