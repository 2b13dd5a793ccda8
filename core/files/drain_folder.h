#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"

/// The only way to files below the drain directory. Other users may own folders there, and may put
/// links, FIFOs or others' files in the place of drained ones, at any moment.
namespace stdchk {

/// An ExpectedFile is what the caller knows of a file before it opens the file. A file that differs
/// is refused.
struct ExpectedFile {
  std::optional<std::uint64_t> inode;
  std::optional<std::uint64_t> size_bytes;
  std::vector<std::uint32_t> owners;  ///< one of these; empty: any
  bool one_name = false;              ///< the file has no other name (hard link)
};

/// An OpenedFile is a regular file, and its status after it was opened.
struct OpenedFile {
  Descriptor file;
  struct stat status {};
};

/// A FoundLink is a symbolic link: its target and its status are of one link, although others may
/// exchange the link meanwhile.
struct FoundLink {
  std::string target;
  struct stat status {};
};

enum class Access : std::uint8_t { kRead, kReadWrite };

/// A DrainFolder is a folder in the drain directory, or that directory, held open.
///
/// Paths are relative to the folder, without "." and "..". No component of a path may be a symbolic
/// link (openat2(2), RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS). On kernels without openat2 each
/// folder is opened from the folder above. No call waits for a FIFO's other end, nor for the holder
/// of a lease on a file (fcntl(2), F_SETLEASE).
///
/// Owns: one descriptor. Threads: any.
/// Errors: a Problem with one of these values of errno, or with the errno of the system call. Its
/// text has no full stop.
///   Type: ELOOP for a link, EISDIR, EINVAL for other types and for a bad path. Lease: EAGAIN.
///   Expectation: EPERM for the owner, ESTALE for inode or size, EMLINK for another name.
/// Not: protection from file systems that hang. Callers do that with threads they can spare.
class DrainFolder {
 public:
  /// How a path is walked; kByHand is for tests, and for kernels before 5.6.
  enum class Walk : std::uint8_t { kByKernel, kByHand };

  DrainFolder() = default;
  explicit DrainFolder(Descriptor folder, Walk walk = Walk::kByKernel)
      : folder_(std::move(folder)), walk_(walk) {}

  /// For the system calls that take a name in this folder and follow no link: renameat, unlinkat,
  /// mkdirat, linkat without flags, symlinkat.
  int get() const { return folder_.get(); }
  explicit operator bool() const { return static_cast<bool>(folder_); }

  /// An empty path is this folder.
  Outcome<DrainFolder> folder(const std::string& path) const;
  /// The folder that holds the last part of `path`.
  Outcome<DrainFolder> parent_of(const std::string& path) const;
  Outcome<OpenedFile> open(const std::string& path, Access access,
                           const ExpectedFile& expected = {}) const;
  /// A new, empty file of mode 0600; EEXIST when anything has that name.
  Outcome<OpenedFile> create(const std::string& name) const;
  /// A file of mode 0600 that has no name, and goes with its descriptor.
  Outcome<Descriptor> create_unnamed() const;
  /// The status of the file at `path`; a link is not followed.
  Outcome<struct stat> status(const std::string& path) const;
  Outcome<struct stat> own_status() const;
  Outcome<FoundLink> link(const std::string& path) const;
  Outcome<std::string> link_target(const std::string& path) const;
  /// All names in this folder but "." and "..", sorted.
  Outcome<std::vector<std::string>> names() const;

 private:
  Descriptor open_at(const std::string& path, int flags, unsigned mode) const;
  Descriptor walk_by_hand(const std::string& path, int flags, unsigned mode) const;

  Descriptor folder_;
  Walk walk_ = Walk::kByKernel;
};

/// A WritableFolder lets this process make, rename and remove names in a folder whose owner has no
/// write permission, for instance of mode 0555. It adds the owner's permissions, and takes them
/// away at its end. If the process is killed before that, the folder keeps them.
///
/// Does nothing for root, for other users' folders, and for writable folders. If two objects
/// exist for one folder, the end of the first makes changes fail with EACCES; the drain then
/// retries.
class WritableFolder {
 public:
  /// `folder` must outlive this.
  explicit WritableFolder(const DrainFolder& folder);
  ~WritableFolder();
  WritableFolder(const WritableFolder&) = delete;
  WritableFolder& operator=(const WritableFolder&) = delete;

 private:
  const DrainFolder& folder_;
  std::optional<mode_t> before_;
};

/// "a symbolic link", "a FIFO", ...
std::string_view kind_of(mode_t mode);

}  // namespace stdchk
