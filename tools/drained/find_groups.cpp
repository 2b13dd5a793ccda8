#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "core/policy/set_naming.h"
#include "core/policy/set_rules.h"
#include "tools/base/left_out.h"
#include "tools/base/set_names.h"
#include "tools/drained/file_groups.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

void add(const Attributes& file, FileGroup& group) {
  if (file.type != FileType::kRegular || file.version == 0) return;
  ++group.files;
  if (file.drain == DrainState::kDrained) return;
  ++group.missing;
  group.missing_bytes += file.stored_bytes;
  if (file.drain != DrainState::kNone) group.to_drain.push_back(file.id);
}

/// A GroupFinder walks the names of a pool and sorts the files into groups.
class GroupFinder {
 public:
  explicit GroupFinder(client::Filesystem& filesystem) : filesystem_(filesystem) {}

  Outcome<void> walk(const std::string& path, const Attributes& start) {
    if (start.type != FileType::kDirectory) {
      add_file(path, start);
      return {};
    }
    // Rules of the parent folders apply to `path`, too.
    SetNaming naming;
    std::string above;
    if (!path.empty()) {
      if (auto done = take_rule(kRootFile, naming); !done) return done;
    }
    for (const fs::path& part : fs::path(path).parent_path()) {
      above = joined(above, part.string());
      const auto folder = filesystem_.resolve(above);
      if (!folder) return failed(above, folder.error());
      if (auto done = take_rule(folder->id, naming); !done) return done;
    }
    return walk_folder(path, start.id, naming);
  }

  std::vector<FileGroup> take() { return std::move(groups_); }

 private:
  /// Takes over the folder's own rule "series", if it has a valid one.
  Outcome<void> take_rule(FileId folder, SetNaming& naming) {
    const auto attributes = filesystem_.xattrs(folder);
    if (!attributes) return failed_unless_gone("the rules of a folder", attributes.error());
    for (const auto& [name, value] : *attributes) {
      const bool is_series = name == std::string(kXattrRule) + "series";
      if (is_series && SetNaming::check(value)) naming = SetNaming(value);
    }
    return {};
  }

  Outcome<void> walk_folder(const std::string& path, FileId id, SetNaming naming) {
    if (auto done = take_rule(id, naming); !done) return done;
    const auto entries = filesystem_.read_directory(id);
    if (!entries) return failed_unless_gone(path.empty() ? "/" : path, entries.error());
    const auto sets = filesystem_.sets(id);
    if (!sets) return failed_unless_gone(path.empty() ? "/" : path, sets.error());
    std::map<std::string, std::size_t> known;  // index in groups_, by name of the set
    for (const auto& set : sets->sets) {
      FileGroup group;
      group.name = joined(path, name_of_set(set));
      group.is_complete = set.complete;
      group.newest_ns = set.newest_ns;
      known.emplace(name_of_set(set), groups_.size());
      groups_.push_back(std::move(group));
    }
    for (const auto& entry : *entries) {
      if (auto done = take_entry(path, entry, naming, known); !done) return done;
    }
    return {};
  }

  Outcome<void> take_entry(const std::string& path, const msg::DirectoryEntry& entry,
                           const SetNaming& naming,
                           const std::map<std::string, std::size_t>& known) {
    const std::string child = joined(path, entry.name);
    if (entry.attributes.type == FileType::kDirectory) {
      const auto set = known.find(entry.name);
      if (set == known.end()) return walk_folder(child, entry.attributes.id, naming);
      groups_[set->second].series = path + "/";
      return add_all(child, entry.attributes.id, set->second);
    }
    if (const auto image = naming.parse(entry.name)) {
      const auto set = known.find(naming.set_of(entry.name));
      if (set != known.end()) {
        groups_[set->second].series = path + "/" + image->application;
        add(entry.attributes, groups_[set->second]);
        return {};
      }
    }
    add_file(child, entry.attributes);
    return {};
  }

  /// Adds all files below a directory that is a set.
  Outcome<void> add_all(const std::string& path, FileId directory, std::size_t group) {
    const auto entries = filesystem_.read_directory(directory);
    if (!entries) return failed_unless_gone(path, entries.error());
    for (const auto& entry : *entries) {
      if (entry.attributes.type != FileType::kDirectory) {
        add(entry.attributes, groups_[group]);
        continue;
      }
      auto done = add_all(joined(path, entry.name), entry.attributes.id, group);
      if (!done) return done;
    }
    return {};
  }

  void add_file(const std::string& path, const Attributes& file) {
    FileGroup group;
    group.name = path;
    group.newest_ns = file.ctime_ns;
    add(file, group);
    if (group.files > 0) groups_.push_back(std::move(group));
  }

  client::Filesystem& filesystem_;
  std::vector<FileGroup> groups_;
};

}  // namespace

Outcome<std::vector<FileGroup>> find_groups(client::Filesystem& filesystem, const std::string& path,
                                            const Attributes& start) {
  GroupFinder finder(filesystem);
  if (auto done = finder.walk(path, start); !done) return problem(done.error());
  return finder.take();
}

}  // namespace stdchk::tools
