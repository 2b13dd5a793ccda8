#include "tools/drained/drained_objects.h"

#include <utility>

#include "core/base/limits.h"
#include "core/files/drain_manifest.h"
#include "core/messages/messages.h"
#include "core/objects/s3_store.h"

namespace stdchk::tools {
namespace {

constexpr const char* kLatest = "latest";

std::string name_of_path(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Outcome<DrainedObjects> DrainedObjects::open(const std::string& drain,
                                             const std::string& endpoint) {
  auto place = ObjectPlace::with_endpoint(drain, endpoint);
  if (!place) return problem(place.error());
  auto clock = std::make_shared<SystemClock>();
  auto store = open_object_store(*place, *clock);
  if (!store) return problem(store.error());
  return DrainedObjects(std::move(*place), std::move(clock), std::move(*store));
}

Outcome<std::vector<DrainedObjects::File>> DrainedObjects::files() const {
  std::vector<File> out;
  const std::string below = place_.prefix.empty() ? "" : place_.prefix + "/";
  const std::string temporary = std::string(msg::kTemporaryFolder) + "/";
  const auto listed = each_object(*store_, below, deadline(), [&](const auto& object) {
    File file{object.key.substr(below.size()), object.key, object.size_bytes};
    const bool is_own = file.path.starts_with(temporary) || is_pool_file(name_of_path(file.path));
    if (!file.path.empty() && !file.path.ends_with('/') && !is_own) out.push_back(std::move(file));
    return true;
  });
  if (!listed) return problem(listed.error());
  return out;
}

std::uint64_t drained_objects_since(const std::string& drain, const std::string& folder,
                                    const ImageName& set, std::time_t since) {
  const auto objects = DrainedObjects::open(drain);
  if (!objects) return 0;
  const std::string below = objects->place().key_of(folder.empty() ? "" : folder + "/");
  std::uint64_t count = 0;
  const Time deadline = objects->deadline();
  const auto listed = each_object(objects->store(), below, deadline, [&](const auto& object) {
    const auto image = parse_image_name(object.key.substr(below.size()));
    if (!image || image->application != set.application || image->timestep != set.timestep) {
      return true;
    }
    const auto found = objects->store().find(object.key, deadline);
    if (found && found->changed_s > since) ++count;
    return true;
  });
  return listed ? count : 0;
}

Outcome<void> drop_link_object(const std::string& drain, const std::string& folder,
                               const std::function<bool(const std::string&)>& is_target_lost) {
  const auto objects = DrainedObjects::open(drain);
  if (!objects) return problem(objects.error());
  const std::string key =
      objects->place().key_of(folder.empty() ? kLatest : folder + "/" + kLatest);
  const auto found = objects->store().find(key, objects->deadline());
  if (!found && is_absent(found.error())) return {};
  if (!found) return problem(found.error());
  const auto attributes = ObjectAttributes::parse(found->metadata);
  if (!attributes || attributes->kind != ObjectKind::kSymlink) return {};
  const auto target =
      get_text(objects->store(), key, limits::kSymlinkBytesMax, objects->deadline());
  if (!target) return problem(target.error());
  if (!is_target_lost(*target)) return {};
  return objects->store().remove(key, objects->deadline());
}

}  // namespace stdchk::tools
