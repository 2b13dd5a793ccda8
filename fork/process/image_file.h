#pragma once

#include <cstdint>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/files/own_folder.h"

/// The files that hold images of parents. Clones run what an image holds: no other user may change
/// its folder, or put a link or another file in its place. `path` is absolute. Errors: a sentence.
namespace stdchk::fork {

inline constexpr FolderRules kImagesRules{.what = "--images", .is_private = false};

/// A new file for writing; a file of this name, of a daemon that was killed, is removed before.
Outcome<Descriptor> make_image(const std::string& path);
/// For reading: a regular file of this user that has `bytes` bytes and no other name.
Outcome<Descriptor> open_image(const std::string& path, std::uint64_t bytes);
/// Removes the file if it exists. Changes nothing in a folder of another user.
void remove_image(const std::string& path);

}  // namespace stdchk::fork
