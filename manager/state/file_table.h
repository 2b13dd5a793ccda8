#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/base/result.h"
#include "core/values/types.h"
#include "manager/state/file.h"

namespace stdchk::manager {

/// A FileTable has every file, directory and symbolic link by its id, and the tree of their names.
/// It begins with the root directory.
///
/// Owns: the files. Threads: one. Limits: pointers to a file are valid until erase() of that file.
/// Not: it keeps no other table consistent; commands change it by a Catalog.
class FileTable {
 public:
  FileTable();

  const File* file(FileId id) const;
  File* find(FileId id);
  Result<const File*> directory(FileId id) const;
  Result<File*> find_directory(FileId id);
  /// Finds committed names, and pending files that `viewer` may see.
  Result<const File*> lookup(FileId parent, std::string_view name, ClientId viewer) const;
  const VersionData* version(FileId id, Version version) const;  ///< version 0: the newest
  Attributes attributes(const File& file, const VersionData& version) const;
  Attributes attributes(const File& file) const { return attributes(file, file.newest); }
  /// Returns the path from the root, without a leading slash, also for pending files. A file with
  /// several names is shown under the first. Empty: the file has no name.
  std::string path(const File& file) const;
  /// Returns the path under that further name of a file.
  std::string path(const Link& link) const;
  bool is_below(FileId file, FileId ancestor) const;
  /// Returns the policy in force: the file's own settings, then those of the folders above it.
  Policy policy(const File& file) const;
  /// Returns true when the drain directory has the bytes of one of the file's versions under
  /// `number`.
  bool is_aside(FileId id, std::uint64_t number) const;
  /// Calls `visit(file)` for every file, in no particular order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [id, file] : files_) visit(*file);
  }
  std::uint64_t size() const { return files_.size(); }

  /// Returns the directory, if a file may get that name there.
  Result<File*> check_new_name(FileId parent, std::string_view name);
  Status check_new_id(FileId id) const;
  /// Adds a file without a name.
  File& add(FileId id, FileType type, std::uint32_t mode, std::uint32_t uid, std::uint32_t gid,
            std::int64_t now_ns);
  void erase(FileId id) { files_.erase(id); }
  /// Gives the file its first committed name.
  void link(File& file, File& parent, std::string_view name);
  /// Removes the first committed name.
  void unlink(File& file);

 private:
  std::unordered_map<FileId, std::unique_ptr<File>> files_;
};

/// Returns kInvalidArgument or kNameTooLong unless `name` can be a directory entry.
Status check_name(std::string_view name);

}  // namespace stdchk::manager
