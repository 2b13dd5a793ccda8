#include "client/read/version_map.h"

#include <algorithm>
#include <utility>

#include "core/base/mutex.h"

namespace stdchk::client {

MapStore::MapStore(Shared& shared, std::function<ClientId()> client, Call call,
                   std::function<void()> collect_soon)
    : shared_(shared), client_(std::move(client)), call_(std::move(call)) {
  released_->collect_soon = std::move(collect_soon);
}

VersionMapPtr MapStore::open(FileId file, Version version) {
  VersionMapPtr map(new VersionMap, [released = released_](VersionMap* dying) {
    const std::unique_ptr<VersionMap> owned(dying);
    if (owned->pinned_in == 0) return;
    bool first = false;
    {
      const MutexLock lock(released->mutex);
      first = released->pins.empty();
      released->pins.push_back({{owned->file, owned->version}, owned->pinned_in});
    }
    if (first) released->collect_soon();
  });
  map->file = file;
  map->version = version;
  load_next(map);
  return map;
}

void MapStore::load_next(const VersionMapPtr& map) {
  if (map->in_flight || map->complete || map->error.has_value()) return;
  map->in_flight = true;
  ++loading_[map->file];
  const std::uint64_t first = map->map.slice_count();
  call_(
      msg::GetMap{client_(), map->file, map->version, first},
      [this, map = VersionMapPtr(map), first, drained = map->drained](rpc::Answer answer) mutable {
        const Lock lock(shared_.mutex);
        on_page(map, first, drained, std::move(answer));
        map.reset();
        shared_.changed.notify_all();
      },
      [this, file = map->file](const rpc::Answer& answer) { on_late_page(file, answer); });
}

void MapStore::reload(const VersionMapPtr& map) {
  if (map->in_flight) return;
  map->map.clear();
  map->complete = false;
  load_next(map);
}

void MapStore::report_wrong(const VersionMap& map, const Extent& copy) {
  call_(msg::ReportWrongCopy{client_(), map.file, map.version, copy}, [](rpc::Answer) {}, {});
}

void MapStore::on_page(const VersionMapPtr& map, std::uint64_t first,
                       const std::shared_ptr<DrainedFile>& drained, rpc::Answer answer) {
  map->in_flight = false;
  if (--loading_[map->file] == 0) loading_.erase(map->file);
  if (!answer.has_value()) {
    // The drain directory is changing, longer than the manager waits. Readers ask again.
    if (answer.error().error.code == Code::kBusy && map.use_count() > 1) return load_next(map);
    map->error = answer.error().error;
    return unpin_unused(map->file);
  }
  auto* reply = std::get_if<msg::GetMap::Reply>(&*answer);
  if (reply == nullptr || first != map->map.slice_count()) {
    map->error = Error{Code::kMalformed, 0, "client.get map"};
    return unpin_unused(map->file);
  }
  if (!map->resolved) {
    map->resolved = true;
    map->version = reply->attributes.version;
  }
  // Each page pins the version, unless the manager has the pin already. A restarted manager does
  // not.
  if (std::exchange(map->pinned_in, life_) != life_) ++pins_[{map->file, map->version}];
  set_shared(map->file, reply->shared);
  map->attributes = reply->attributes;
  map->drained_path = std::move(reply->drained_path);
  if (map->drained != nullptr &&
      (map->drained->path != map->drained_path || map->drained->state != map->attributes.drain)) {
    map->drained.reset();
  } else if (map->drained != nullptr && map->drained == drained) {
    map->drained->right = true;
  }
  if (const Status added = map->map.add(reply->page); !added) map->error = added.error();
  map->complete = map->map.slice_count() >= reply->slice_count;
  if (!map->complete && reply->page.slices.empty()) {
    map->error = Error{Code::kMalformed, 0, "client.get map"};
  }
  unpin_unused(map->file);
}

void MapStore::set_shared(FileId file, bool is_shared) {
  const auto pin = pins_.lower_bound({file, 0});
  if (!is_shared || pin == pins_.end() || pin->first.first != file) {
    shared_files_.erase(file);
  } else {
    shared_files_.insert(file);
  }
}

/// Removes the pin that a late answer has brought, unless another map needs the version.
void MapStore::on_late_page(FileId file, const rpc::Answer& answer) {
  const Lock lock(shared_.mutex);
  const auto* reply = answer ? std::get_if<msg::GetMap::Reply>(&*answer) : nullptr;
  if (reply == nullptr) return;
  pins_.try_emplace({file, reply->attributes.version}, 0);
  unpin_unused(file);
}

void MapStore::collect() {
  std::vector<Released::Pin> gone;
  {
    const MutexLock lock(released_->mutex);
    gone.swap(released_->pins);
  }
  for (const Released::Pin& each : gone) {
    const auto pin = pins_.find(each.key);
    if (each.life != life_ || pin == pins_.end() || pin->second == 0) continue;
    --pin->second;
    unpin_unused(each.key.first);
  }
}

void MapStore::unpin_unused(FileId file) {
  // A page on its way may bring a pin for a map that is not counted yet: keep it.
  if (loading_.contains(file)) return;
  for (auto pin = pins_.lower_bound({file, 0}); pin != pins_.end() && pin->first.first == file;) {
    if (pin->second > 0) {
      ++pin;
      continue;
    }
    call_(msg::Unpin{client_(), file, pin->first.second}, [](rpc::Answer) {}, {});
    pin = pins_.erase(pin);
  }
  if (is_shared(file)) set_shared(file, true);  // forgets it when no pin is left
}

void MapStore::forget_pins() {
  ++life_;
  pins_.clear();
  shared_files_.clear();
}

}  // namespace stdchk::client
