#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A HeldDirectories knows the names in the directories that this client holds, and makes the
/// manager's checks and effects of each change (docs/decisions/0075). A directory's own attributes
/// are kept with its names.
///
/// Threads: one at a time (the engine's lock).
/// Errors: a change that fails changes nothing.
/// Limits: about 300 bytes for each name.
class HeldDirectories {
 public:
  using Names = std::map<std::string, FileId, std::less<>>;
  /// The manager's knowledge of a file.
  enum class Stage : std::uint8_t {
    kStored,   ///< its name, perhaps still in a batch
    kEmpty,    ///< nothing yet: an open file without bytes
    kPending,  ///< a session, whose commit gives the file its name
  };
  struct File {
    FileId parent;
    std::string name;
    FileType type = FileType::kRegular;
    Stage stage = Stage::kStored;
    /// Unset: only the manager knows them.
    std::optional<Attributes> attributes;
    /// The times of an empty file that were set: kAtime, kMtime.
    std::uint32_t times_set = 0;
  };
  struct Directory {
    Names names;
    Attributes attributes;
    std::size_t name_bytes_max = 0;
  };

  bool empty() const { return directories_.empty(); }
  std::size_t directory_count() const { return directories_.size(); }
  std::size_t file_count() const { return files_.size(); }
  /// Returns nullptr when the directory is not held.
  const Directory* directory(FileId id) const;
  /// Returns the file, if its name is in a held directory.
  const File* file(FileId id) const;
  /// Requires that the directory is held. Returns nullptr when there is no such name.
  const File* find(FileId directory, std::string_view name, FileId* id = nullptr) const;
  /// Returns the known attributes of a held directory, or of a file with a name there.
  std::optional<Attributes> attributes(FileId id) const;
  std::vector<FileId> directories() const;

  /// Takes a directory with its names. `is_written`: a session of this client writes the file.
  void add(Directory directory, const std::vector<msg::DirectoryEntry>& entries,
           const std::function<bool(FileId)>& is_written);
  void drop(FileId directory);
  /// From now on only the manager knows the file's attributes.
  void forget_attributes(FileId file);
  void set_stage(FileId file, Stage stage);
  /// Drops the name of a file that the pool lacks.
  void erase(FileId file);

  // ---- changes at the time `now_ns`. The directories must be held.
  /// Makes a file that the manager does not know yet.
  const File& make_file(const msg::NameChange& change, std::int64_t now_ns);
  /// Makes the name of an empty file known: returns the changes for the batch.
  std::vector<msg::NameChange> store(FileId file, std::int64_t now_ns, bool drains);
  /// Makes a directory, which is held when the change says so, or a symbolic link.
  Attributes make(const msg::NameChange& change);
  void remove(const msg::NameChange& change);
  void rename(const msg::NameChange& change);
  void change_attributes(const msg::NameChange& change);
  /// The names of the directory have changed.
  void touch(FileId directory, std::int64_t now_ns);

 private:
  void link(FileId id, File file);

  std::unordered_map<FileId, Directory> directories_;
  std::unordered_map<FileId, File> files_;
};

/// Returns true when changes with this name must be left to the manager.
bool is_name_for_manager(std::string_view name, const HeldDirectories::Directory& directory,
                         bool drains);

}  // namespace stdchk::client
