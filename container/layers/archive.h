#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "container/program/program.h"

/// A container's image: one tar(1) archive, a member A.Ni.Tj of a set.
///
/// | member     | what                                                                          |
/// |------------|-------------------------------------------------------------------------------|
/// | pages-*.img| memory; first, so that equal pages have equal places in all versions          |
/// | *.img      | the rest of CRIU's images                                                     |
/// | upper.tar  | changes of the file system: the upper folder of the overlay, with whiteouts   |
namespace stdchk::container {

/// Packs the folder `upper` into `archive`: files, whiteouts (devices 0:0), and the
/// attributes that mark opaque folders (overlayfs: Documentation/filesystems/overlayfs.rst).
Outcome<void> pack_changes(const std::string& upper, const std::string& archive, Duration deadline);
Outcome<void> unpack_changes(const std::string& archive, const std::string& upper,
                             Duration deadline);

/// Writes the images in `folder` to `archive`, a file in the pool. On an error no such file stays.
/// `cancelled` becomes true when the image is no longer needed. The folder of `archive` must be
/// this user's own (core/files/own_folder.h), for reading, too.
Outcome<std::uint64_t> pack_image(const std::string& folder, const std::string& archive,
                                  Duration deadline, const std::atomic<bool>& cancelled);
Outcome<void> unpack_image(const std::string& archive, const std::string& folder,
                           Duration deadline);

/// As unpack_image(), but leaves the memory (pages-*.img) in the archive.
Outcome<void> unpack_without_memory(const std::string& archive, const std::string& folder,
                                    Duration deadline);

/// An ArchivedFile is a file's place in an archive, in bytes.
struct ArchivedFile {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const ArchivedFile&) const = default;
};
/// Returns the files with memory, which lie first in the archive. Accepts any bytes. The folder
/// must belong to this user, as for unpack_image().
Outcome<std::vector<ArchivedFile>> memory_in(const std::string& archive);

/// Bytes of all files in the folder.
std::uint64_t bytes_in(const std::string& folder);

}  // namespace stdchk::container
