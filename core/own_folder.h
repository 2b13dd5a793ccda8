#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "core/result.h"

namespace stdchk {

/// FolderRules say what a folder must be like before a program of a pool puts anything there.
struct FolderRules {
  /// Names the folder in errors: "the state directory".
  const char* what = "the folder";
  /// Others may not even read it. Otherwise they may read, and never write.
  bool is_private = true;
  /// Nobody but this user and root may be able to put another folder in its place. Without this a
  /// folder may lie where others of a project can rename it: they can take it away, no more.
  bool safe_above = true;
};

/// An OwnFolder is an open folder that belongs to this user, and in which nobody else can write.
///
/// It is reached from "/" step by step without following a link of another user, and looked at
/// after it was opened. Every call below it is relative to its descriptor and follows no link, so a
/// name that somebody planted is an error and never leads elsewhere.
///
/// Owns: the descriptor. Threads: any, one at a time.
/// Errors: open() and make() say in one sentence what is wrong, and what to do.
/// Not: protection from root, or from other processes of this user.
class OwnFolder {
 public:
  using Opened = tl::expected<OwnFolder, std::string>;

  /// `path` is absolute. The last part may not be a link.
  static Opened open(const std::string& path, const FolderRules& rules);
  /// Makes what is not there yet: the folder with mode 0700 (0755 when it is not private), those
  /// above it with 0755. The new names are durable.
  static Opened make(const std::string& path, const FolderRules& rules);

  ~OwnFolder();
  OwnFolder(OwnFolder&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OwnFolder& operator=(OwnFolder&& other) noexcept;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  /// A regular file of this user or of root that others cannot write, up to `bytes_max`; a longer
  /// one is kTooLarge, one that is not there kNotFound.
  Result<std::string> read(const std::string& name, std::size_t bytes_max) const;
  /// A new file of mode 0600. One that is there already is kExists, also when it is a link.
  Status write_new(const std::string& name, std::string_view text) const;
  /// A reader finds the old file or the new one, whole; after a power failure, too.
  Status write_at_once(const std::string& name, std::string_view text) const;
  /// What is not there is no error.
  Status remove(const std::string& name) const;
  bool has(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  OwnFolder(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static Opened reach(const std::string& path, const FolderRules& rules, bool makes);
  Status fill(const std::string& name, std::string_view text) const;

  int fd_;
  std::string path_;
};

/// Adds to a file of this user, which is made when it is not there. Others may be able to write in
/// its folder: a link of another user is not followed, and another user's file, or one that is no
/// regular file, is not written to. A link of this user or of root to an absolute path is followed,
/// as /dev/stderr is.
Status append_to_own_file(const std::string& path, std::string_view text);

/// "alice (uid 1001)", for errors.
std::string user_text(uid_t user);

}  // namespace stdchk
