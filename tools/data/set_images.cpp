#include "tools/data/set_images.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/base/folder_rules.h"
#include "tools/base/set_names.h"

namespace stdchk::tools {
namespace {

/// Finds the images of a set that is a pattern of names.
Outcome<void> find_images(const Located& folder, ChosenSet& set) {
  const auto rules = find_rules(*folder.filesystem, folder.path);
  if (!rules) return problem(rules.error());
  const auto entries = folder.filesystem->read_directory(folder.attributes.id);
  if (!entries) return failed("the folder", entries.error());
  SetIndex index(naming_of(*rules));
  std::map<std::string, const Attributes*> files;
  for (const auto& entry : *entries) {
    if (entry.attributes.type != FileType::kRegular) continue;
    index.add(entry.name);
    files.emplace(entry.name, &entry.attributes);
  }
  const auto key = index.find(set.name);
  if (!key) return problem("the images of the set {} were removed", set.name);
  for (const SetMember& member : index.members(*key)) {
    set.images.push_back({member.rank, member.name, *files.at(member.name)});
  }
  std::ranges::sort(set.images, {}, [](const SetImage& image) {
    return std::tuple(!image.rank.has_value(), image.rank, image.name);
  });
  return {};
}

/// Finds the files, folders and links of a set's directory. Refuses FIFOs, sockets and devices.
Outcome<void> find_files(client::Filesystem& filesystem, const std::string& path, FileId folder,
                         ChosenSet& set) {
  set.folders.push_back(path);
  const auto entries = filesystem.read_directory(folder);
  if (!entries) return failed(path, entries.error());
  for (const auto& entry : *entries) {
    const std::string inner = path + "/" + entry.name;
    const Attributes& attributes = entry.attributes;
    if (attributes.type == FileType::kDirectory) {
      if (auto found = find_files(filesystem, inner, attributes.id, set); !found) return found;
    } else if (attributes.type == FileType::kRegular) {
      set.images.push_back({std::nullopt, inner, attributes});
    } else if (attributes.type == FileType::kSymlink) {
      auto target = filesystem.read_symlink(attributes.id);
      if (!target) return failed(inner, target.error());
      set.links.emplace_back(inner, std::move(*target));
    } else {
      return problem(
          "{} is a FIFO, a socket or a device, which restart cannot load. Remove it, or copy the "
          "directory yourself",
          inner);
    }
  }
  return {};
}

/// Fails if the folder itself is a set: its user meant the folder above.
Outcome<void> refuse_set(const Located& folder) {
  if (folder.path.empty() || folder.attributes.type != FileType::kDirectory) return {};
  const std::size_t slash = folder.path.rfind('/');
  const std::string above = slash == std::string::npos ? "" : folder.path.substr(0, slash);
  const std::string name = slash == std::string::npos ? folder.path : folder.path.substr(slash + 1);
  const auto parent = folder.filesystem->resolve(above);
  if (!parent) return failed(above, parent.error());
  const auto sets = folder.filesystem->sets(parent->id);
  if (!sets) return failed("the sets", sets.error());
  const bool is_set = std::ranges::any_of(
      sets->sets, [&](const auto& set) { return is_named(set) && set.application == name; });
  if (!is_set) return {};
  return problem("{} is itself a set. Give the folder above it, and --set '{}'", name, name);
}

}  // namespace

Outcome<std::optional<ChosenSet>> choose_set(const Located& folder, const std::string& wanted) {
  client::Filesystem& filesystem = *folder.filesystem;
  const auto sets = filesystem.sets(folder.attributes.id);
  if (!sets) return failed("the sets", sets.error());
  std::string name = wanted;
  while (name.ends_with('/')) name.pop_back();
  const auto found = std::ranges::find_if(sets->sets, [&](const auto& set) {
    return name.empty() ? set.latest : name_of_set(set) == name;
  });
  if (found == sets->sets.end()) {
    if (auto done = refuse_set(folder); !done) return problem(done.error());
    if (name.empty()) return std::optional<ChosenSet>();
    return problem("there is no set {} in that folder; stdchk set list shows the sets", name);
  }
  ChosenSet set;
  set.name = name_of_set(*found);
  std::optional<FileId> directory;
  if (is_named(*found)) {
    const auto there = filesystem.lookup_fresh(folder.attributes.id, set.name);
    if (there && there->type == FileType::kDirectory) directory = there->id;
  }
  set.is_directory = directory.has_value();
  auto done =
      directory ? find_files(filesystem, set.name, *directory, set) : find_images(folder, set);
  if (!done) return problem(done.error());
  return set;
}

}  // namespace stdchk::tools
