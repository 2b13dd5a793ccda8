#pragma once

#include <functional>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/objects/object_store.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// Emits commands that show the files of an object store, as import_drained() does for a drain
/// directory. `place` names the store (ObjectPlace). Removes staged objects, and ends uploads, that an
/// earlier pool has left below the prefix.
///
/// An object that no pool has written becomes a file of mode 0644. Keys that are no valid paths are left out, with a warning.
///
/// Limits: blocks while it looks at each object, kLooksAtOnce at once.
Status import_objects(const std::string& place, const std::function<void(Command)>& emit);
/// Imports from an open store. `prefix` begins all keys, without a slash at its end.
Status import_objects(ObjectStore& store, const std::string& prefix, Time deadline,
                      const std::function<void(Command)>& emit);

}  // namespace stdchk::manager
