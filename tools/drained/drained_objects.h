#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/objects/object_attributes.h"
#include "core/objects/object_place.h"
#include "core/objects/object_store.h"
#include "core/policy/image_name.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A DrainedObjects is an object store that a pool drains to, opened by a command.
///
/// Threads: any.
class DrainedObjects {
 public:
  /// Longest time of a request with its repeats.
  static constexpr Duration kPatience = std::chrono::seconds(60);

  struct File {
    std::string path;  ///< below the prefix of the place
    std::string key;
    std::uint64_t size_bytes = 0;
  };

  /// Opens the store of `drain`: s3://BUCKET/PREFIX with its settings.
  static Outcome<DrainedObjects> open(const std::string& drain, const std::string& endpoint = {});

  const ObjectPlace& place() const { return place_; }
  ObjectStore& store() const { return *store_; }
  Time deadline() const { return clock_->now() + kPatience; }
  /// Lists the files below the prefix, without folders and without the pool's own objects.
  Outcome<std::vector<File>> files() const;

 private:
  DrainedObjects(ObjectPlace place, std::shared_ptr<const Clock> clock,
                 std::unique_ptr<ObjectStore> store)
      : place_(std::move(place)), clock_(std::move(clock)), store_(std::move(store)) {}

  ObjectPlace place_;
  std::shared_ptr<const Clock> clock_;
  std::unique_ptr<ObjectStore> store_;
};

/// As drained_since(), for the object store `drain`. Zero when the store does not answer.
std::uint64_t drained_objects_since(const std::string& drain, const std::string& folder,
                                    const ImageName& set, std::time_t since);

/// Removes the link `latest` of a folder, if `is_target_lost` says so of the link's target.
Outcome<void> drop_link_object(const std::string& drain, const std::string& folder,
                               const std::function<bool(const std::string&)>& is_target_lost);

}  // namespace stdchk::tools
