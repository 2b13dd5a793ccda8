#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/descriptor.h"
#include "core/files/drain_folder.h"
#include "core/values/types.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A LocalFile is a new file of a LocalFolder. It has a temporary name until finish(). Several
/// processes may copy the same file: each copies to a temporary name of its own, and the last one
/// stays, whole.
///
/// Owns: its descriptor; its temporary name, which ends with this object. Threads: one.
class LocalFile {
 public:
  LocalFile(std::string path, std::string name, DrainFolder folder, std::string temporary,
            Descriptor file)
      : path_(std::move(path)),
        name_(std::move(name)),
        folder_(std::move(folder)),
        temporary_(std::move(temporary)),
        file_(std::move(file)) {}
  LocalFile(LocalFile&&) = default;
  LocalFile& operator=(LocalFile&&) = delete;
  ~LocalFile();

  Outcome<void> write(std::uint64_t offset, ByteSpan bytes);
  /// Reads bytes within the size of the file.
  Outcome<void> read(std::uint64_t offset, MutableByteSpan out) const;
  /// Bytes that were not written read as zeros. They take no room on file systems with holes.
  Outcome<void> set_size(std::uint64_t size_bytes);
  /// Sets the mode and closes the file, then replaces what has the file's name. Nothing is synced:
  /// the pool still has the file if the node loses it.
  Outcome<void> finish(mode_t mode);

 private:
  tl::unexpected<Problem> failed_to_write() const;

  std::string path_;  ///< for messages
  std::string name_;
  DrainFolder folder_;
  std::string temporary_;
  Descriptor file_;
};

/// A LocalFolder is a folder of this node to which `restart --to` copies a set. Other users may
/// write in it, as in /dev/shm: no link below it is followed, and a folder of another user is
/// refused.
///
/// Paths are relative to it. Threads: any, after the folders are made.
class LocalFolder {
 public:
  static Outcome<LocalFolder> open(const std::string& path);

  /// Makes the folder, or takes an existing one of this user. The folders above it exist.
  Outcome<void> make_folder(const std::string& path) const;
  /// Makes a symbolic link in the place of what has its name.
  Outcome<void> make_link(const std::string& path, const std::string& target) const;
  Outcome<LocalFile> create(const std::string& path) const;
  /// Returns the path of an entry of the folder `path`, or below, that `is_wanted` does not accept;
  /// empty: there is none. Leaves out temporary names.
  std::string find_other(const std::string& path,
                         const std::function<bool(const std::string&)>& is_wanted) const;

 private:
  LocalFolder(std::string path, DrainFolder folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  tl::unexpected<Problem> cannot_be_made(const std::string& path, int os_errno) const;

  std::string path_;
  DrainFolder folder_;
};

}  // namespace stdchk::tools
