#include "tools/data/set_images.h"

#include <algorithm>
#include <optional>

#include "core/policy/image_name.h"
#include "tools/base/set_names.h"

namespace stdchk::tools {

Outcome<std::optional<msg::ListSets::Entry>> choose_set(client::Filesystem& filesystem,
                                                        FileId folder, const std::string& wanted) {
  auto sets = filesystem.sets(folder);
  if (!sets) return failed("the sets", sets.error());
  for (const auto& set : sets->sets) {
    const std::string name = name_of_set(set);
    if (wanted.empty() ? set.latest : name == wanted) return set;
  }
  if (!wanted.empty()) return problem("there is no set {} in that folder", wanted);
  return std::optional<msg::ListSets::Entry>();
}

Outcome<std::vector<SetImage>> images_of(client::Filesystem& filesystem, FileId folder,
                                         const msg::ListSets::Entry& set) {
  if (is_named(set)) {
    return problem(
        "the images of the set {} are not named A.Ni.Tj: programs read them by their paths",
        set.application);
  }
  auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the folder", entries.error());
  std::vector<SetImage> images;
  for (const auto& entry : *entries) {
    const auto image = parse_image_name(entry.name);
    if (!image || image->application != set.application || image->timestep != set.timestep)
      continue;
    images.push_back({image->node, entry.name, entry.attributes});
  }
  std::ranges::sort(images, {}, &SetImage::rank);
  return images;
}

}  // namespace stdchk::tools
