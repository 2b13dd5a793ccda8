#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A rank's image of a set.
struct SetImage {
  std::uint64_t rank = 0;
  std::string name;
  Attributes attributes;
};

/// The wanted set (A.*.Tj), otherwise the newest complete one; nothing when no set is complete.
Outcome<std::optional<msg::ListSets::Entry>> choose_set(client::Filesystem& filesystem,
                                                        FileId folder, const std::string& wanted);
/// The images of a set, ordered by rank.
Outcome<std::vector<SetImage>> images_of(client::Filesystem& filesystem, FileId folder,
                                         const msg::ListSets::Entry& set);

}  // namespace stdchk::tools
