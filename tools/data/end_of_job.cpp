#include "tools/data/end_of_job.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "core/files/drain_directory.h"
#include "core/policy/image_name.h"
#include "core/policy/policy.h"
#include "tools/base/connection.h"
#include "tools/drained/manifest_change.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLatest = "latest";
using SetKey = std::pair<std::string, std::uint64_t>;  ///< application and timestep

/// A Choice lists a folder's sets to remove, and those among them to drain before removal.
struct Choice {
  std::set<SetKey> go;
  std::set<SetKey> wait;  ///< given up, but must be drained before
};

/// `sets`: newest first.
Choice choose(const msg::ListSets::Reply& sets, const Policy& policy) {
  const auto end = static_cast<EndOfJob>(policy.get(PolicyKey::kEnd));
  const bool must_be_drained = policy.get(PolicyKey::kMustBeDrained) != 0;
  Choice choice;
  std::set<std::string> have_last;
  for (const auto& set : sets.sets) {
    const bool last = set.complete && have_last.insert(set.application).second;
    // Without a complete set, no set counts more than another.
    const bool older = have_last.contains(set.application) && !last;
    const bool given_up = end == EndOfJob::kRemove || (end == EndOfJob::kLast && older);
    if (!given_up || set.pinned) continue;
    const bool waits = must_be_drained && set.drained < set.images;
    (waits ? choice.wait : choice.go).emplace(set.application, set.timestep);
  }
  return choice;
}

/// Removes the images of `sets`; returns their names.
Outcome<std::vector<std::string>> remove_images(client::Filesystem& filesystem, FileId folder,
                                                const std::set<SetKey>& sets) {
  auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the images", entries.error());
  std::vector<std::string> removed;
  for (const auto& entry : *entries) {
    const auto image = parse_image_name(entry.name);
    if (!image || entry.attributes.type != FileType::kRegular) continue;
    if (!sets.contains({image->application, image->timestep})) continue;
    const auto done = filesystem.remove(folder, entry.name, false);
    if (!done && done.error().code != Code::kNotFound) return failed(entry.name, done.error());
    removed.push_back(entry.name);
  }
  return removed;
}

Outcome<void> clear_folder(client::Filesystem& filesystem, const std::string& path, FileId folder,
                           const Policy& policy, Cleared& cleared) {
  std::vector<std::string>& names = cleared.removed[path];
  for (;;) {  // lists page by page; the list of sets is finite
    auto sets = filesystem.sets(folder);
    if (!sets) return failed(path, sets.error());
    const Choice choice = choose(*sets, policy);
    std::vector<std::string> removed;
    if (!choice.go.empty()) {
      auto done = remove_images(filesystem, folder, choice.go);
      if (!done) return problem(done.error());
      removed = std::move(*done);
    }
    names.insert(names.end(), removed.begin(), removed.end());
    if (!removed.empty()) continue;
    for (const auto& [application, timestep] : choice.wait) {
      cleared.notes.push_back(fmt::format("{} stays: it must be drained and is not yet.",
                                          set_name(application, timestep)));
    }
    return {};
  }
}

/// Removes a drain folder's link if its set has been removed.
void drop_link(const DrainFolder& folder, const std::vector<std::string>& removed) {
  const auto target = parse_set_name(folder.link_target(kLatest).value_or(""));
  if (!target) return;
  const bool gone = std::ranges::any_of(removed, [&](const std::string& name) {
    const auto image = parse_image_name(name);
    return image->application == target->application && image->timestep == target->timestep;
  });
  if (gone) ::unlinkat(folder.get(), kLatest, 0);
}

}  // namespace

Outcome<Cleared> clear_sets(const PoolRecord& pool) {
  auto filesystem = connect(pool);
  if (!filesystem) return problem(filesystem.error());
  auto root = (*filesystem)->attributes(kRootFile);
  if (!root) return failed("/", root.error());
  Cleared cleared;
  cleared.drain_directory = (*filesystem)->config().drain_directory;
  Outcome<void> done;
  auto walked =
      walk(**filesystem, "", *root, [&](const std::string& path, const Attributes& attributes) {
        if (attributes.type != FileType::kDirectory) return true;
        auto policy = (*filesystem)->policy(attributes.id);
        if (!policy) {
          done = failed(path, policy.error());
        } else if (policy->effective.get(PolicyKey::kEnd) !=
                   static_cast<std::uint64_t>(EndOfJob::kKeep)) {
          done = clear_folder(**filesystem, path, attributes.id, policy->effective, cleared);
        }
        return done.has_value();
      });
  if (!walked) return problem(walked.error());
  if (!done) return problem(done.error());
  if (cleared.removed.empty()) return cleared;  // no folder has this policy
  std::size_t images = 0;
  for (const auto& [folder, names] : cleared.removed) images += names.size();
  cleared.notes.push_back(
      fmt::format("{} images of the job that has ended well were removed.", images));
  return cleared;
}

Outcome<void> forget_removed(const Cleared& cleared) {
  for (const auto& [folder, names] : cleared.removed) {
    const std::string path = (fs::path(cleared.drain_directory) / folder).string();
    const auto root = DrainDirectory(cleared.drain_directory).open();
    if (!root) return problem("{}", root.error().text);
    const auto there = root->folder(folder);
    if (!there && there.error().error.os_errno == ENOENT) continue;
    if (!there) return problem("{}", there.error().text);
    if (auto done = forget_in_manifest(*there, path, names); !done) return done;
    drop_link(*there, names);
  }
  return {};
}

}  // namespace stdchk::tools
