#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/policy/access_list.h"
#include "manager/state/file.h"

/// The access lists of files, which are extended attributes (core/policy/access_list.h). A file's
/// mode and its list always say the same: each function changes both.
namespace stdchk::manager {

bool has_access_list(const File& file);
/// Returns true when files that are made in the directory get access lists.
bool has_default_list(const File& directory);

/// The mode of a new file, whose maker has the umask applied in `mode`, and not in `unmasked`. A
/// default list takes the place of the umask.
std::uint32_t mode_for_new(const File& directory, std::uint32_t mode, std::uint32_t unmasked);
/// Gives a file that was just made the lists that the directory's default list asks for.
void inherit_lists(const File& directory, File& made);
/// chmod(2): changes the file's mode, and its list.
void change_mode(File& file, std::uint32_t mode);
/// Sets one of the two lists. An access list sets the mode, too; a list that says no more than a
/// mode is not stored. Errors: kInvalidArgument.
Status set_list(File& file, std::string_view xattr, const std::string& value);
/// Returns a mode for a place without access lists, such as the drain directory. No user gains rights
/// that the list denies.
std::uint32_t mode_without_list(const File& file);

}  // namespace stdchk::manager
