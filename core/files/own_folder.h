#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/problem.h"
#include "core/base/result.h"

namespace stdchk {

/// FolderRules say what a folder must be like before a program of a pool puts anything there.
struct FolderRules {
  /// Names the folder in errors: "the state directory".
  const char* what = "the folder";
  /// Others may not even read it. Otherwise they may read, and never write.
  bool is_private = true;
  /// True: only this user and root may be able to replace the folder. False: it may lie in a
  /// project's folder. Other users of that folder can rename it, but neither read nor change it.
  bool safe_above = true;
};

/// An OwnFolder is an open folder of this user, and no other user can write in it.
///
/// open() goes from "/" part by part, follows no link of another user, and checks the folder after
/// it was opened. Every later call is relative to its descriptor and follows no link. So a link
/// that another user planted is an error and never leads elsewhere.
///
/// Owns: the descriptor. Threads: any, one at a time.
/// Errors: open() and make() say in one sentence what is wrong, and what to do.
/// Not: protection from root, or from other processes of this user.
class OwnFolder {
 public:
  /// `path` is absolute. A link as its last part is refused.
  static Outcome<OwnFolder> open(const std::string& path, const FolderRules& rules);
  /// Makes missing folders: the last with mode 0700 (0755 when it is not private), others with
  /// 0755. The new names are durable.
  static Outcome<OwnFolder> make(const std::string& path, const FolderRules& rules);

  ~OwnFolder();
  OwnFolder(OwnFolder&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  OwnFolder& operator=(OwnFolder&& other) noexcept;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  /// Reads a regular file of this user or of root that others cannot write. Errors. kTooLarge: the
  /// file is longer than `bytes_max`. kNotFound: the file does not exist.
  Result<std::string> read(const std::string& name, std::size_t bytes_max) const;
  /// Makes a new file of mode 0600. kExists: the name is taken, by a link, for example.
  Status write_new(const std::string& name, std::string_view text) const;
  /// A reader finds the old file or the new one, whole; after a power failure, too.
  Status write_at_once(const std::string& name, std::string_view text) const;
  /// Removes a file. A missing file is no error.
  Status remove(const std::string& name) const;
  bool has(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  OwnFolder(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  static Outcome<OwnFolder> reach(const std::string& path, const FolderRules& rules, bool makes);
  Status fill(const std::string& name, std::string_view text) const;

  int fd_;
  std::string path_;
};

/// Appends to a regular file of this user, and makes a missing one. Other users may write in its
/// folder: their links are not followed, and their files are not written to. A link of this user or
/// of root to an absolute path is followed, such as /dev/stderr.
Status append_to_own_file(const std::string& path, std::string_view text);

/// "alice (uid 1001)", for errors.
std::string user_text(uid_t user);

}  // namespace stdchk
