#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/objects/object_place.h"
#include "core/objects/object_store.h"
#include "tools/base/problem.h"
#include "tools/drained/drained_source.h"

namespace stdchk::tools {

/// Opens the drained files of an object store. Lists them, and looks at each object once: `requests`
/// at once. Later reads fail if an object was replaced since then.
///
/// An object that no pool has drained is a file without checksums. Metadata of a pool that cannot be
/// understood make a damaged file. Keys that are no paths, and a file whose name a folder has, are left
/// out, with a message.
///
/// A request ends after 60 s. If the store answered no other request meanwhile, all later requests fail
/// at once.
Outcome<std::unique_ptr<DrainedSource>> open_object_source(const std::string& path,
                                                           const std::string& endpoint,
                                                           std::uint32_t requests);
/// Reads the open `store`, whose name is `place`.
Outcome<std::unique_ptr<DrainedSource>> open_object_source(ObjectPlace place,
                                                           std::shared_ptr<ObjectStore> store,
                                                           std::shared_ptr<const Clock> clock,
                                                           std::uint32_t requests);

}  // namespace stdchk::tools
