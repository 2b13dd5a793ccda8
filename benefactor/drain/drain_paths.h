#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/problem.h"
#include "core/files/drain_directory.h"
#include "core/values/types.h"

/// Names below the drain directory. They come from the wire and are not trusted: a path is
/// relative, without ".." and without symbolic links (core/files/drain_folder.h).
namespace stdchk::benefactor {

/// kDrainFailed with the errno of the call that failed and a sentence with its remedy.
tl::unexpected<Problem> storage_problem(std::string_view what, std::string_view path, int os_errno);

/// Makes the same problem of a DrainFolder's refusal.
tl::unexpected<Problem> storage_problem(const Problem& refusal);

/// The parts of `path`; kInvalidArgument when it is empty, absolute, too long, has an empty part,
/// "." or "..", or leads into the folder of temporary files.
Outcome<std::vector<std::string>> split_path(const std::string& path);

enum class Missing : std::uint8_t {
  kFails,   ///< a missing folder is kDrainFailed with ENOENT
  kIsMade,  ///< makes missing folders; syncs each folder before the next
};

/// A Place is a name in an open folder.
struct Place {
  DrainFolder folder;
  std::string name;
  std::string path;  ///< for messages
};

Outcome<DrainFolder> open_root(const DrainDirectory& directory);
/// Opens the folder that holds the last part of `path`.
Outcome<Place> find_place(const DrainFolder& root, const std::string& path, Missing missing);
/// Makes the folder of temporary files. Returns true only to the first caller on all hosts.
Outcome<bool> make_temporary_folder(const DrainFolder& root);
/// Returns the place of the temporary file of (file, number), and makes its folder. Refuses a
/// folder in which another user could replace temporary files.
Outcome<Place> temporary_place(const DrainDirectory& directory, const DrainFolder& root,
                               FileId file, std::uint64_t number);
/// Returns true for the name of a temporary file that nobody uses any more. The name begins with
/// FILE.NUMBER, and NUMBER is below `first_used` (MirrorKind::kDropTemporary).
bool is_old_temporary(const std::string& name, std::uint64_t first_used);
/// Returns true for the number of a change of names. The number of an attempt begins with its epoch.
bool is_of_name_change(std::uint64_t number);
/// Owners that a temporary file of this pool may have.
std::vector<std::uint32_t> maker_owners(const DrainDirectory& directory, const DrainFolder& root);

/// Returns true when only root and the draining user may remove or replace names in a folder with
/// this status.
bool is_closed_to_others(const struct stat& folder, const std::vector<std::uint32_t>& makers);

/// Makes changes of names in the folder durable.
Outcome<void> sync_folder(const DrainFolder& folder, std::string_view path);

}  // namespace stdchk::benefactor
