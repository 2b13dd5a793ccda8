#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/files/own_folder.h"

namespace stdchk::fork::vm {

/// A project's other users may rename the folder above, but nobody else may write in this folder.
inline constexpr FolderRules kImageRules{
    .what = "the image's folder", .is_private = false, .safe_above = false};

/// A SavedMachine is a folder with the image of a machine: "memory", "descriptor", "disk-N.qcow2"
/// and "machine.json". The last file is machine.json: a folder without it is no image.
///
/// Owns: the open folder. Paths of the image lead through its descriptor, so they stay right when
/// another user renames the folder. They are valid while this object and this process live.
struct SavedMachine {
  Descriptor folder;
  std::vector<std::string> words;  ///< QEMU's command line
  std::size_t disks = 0;           ///< number of writable disks
  std::uint64_t memory_bytes = 0;
  bool has_network = false;  ///< the machine has an interface in its family's network

  std::string memory() const { return path("memory"); }
  std::string descriptor() const { return path("descriptor"); }
  std::string settings() const { return path("machine.json"); }
  std::string disk(std::size_t number) const;

  /// Errors: a sentence. The image is refused when another user can change it.
  static Outcome<SavedMachine> read(const std::string& folder);

 private:
  std::string path(const std::string& name) const;
};

/// Copies a file descriptor's content. Its holes, and long runs of zeros, become holes. Errors: a
/// sentence.
Outcome<void> copy_to(int from, const std::string& path);
/// Copies a file into an open memory file. Errors: a sentence.
Outcome<void> fill_from(const std::string& path, int to);
/// Copies a disk with all overlays below it into one qcow2 file.
Outcome<void> copy_disk(const std::string& from, const std::string& path);
/// Writes machine.json.
Outcome<void> finish(const SavedMachine& machine);

}  // namespace stdchk::fork::vm
