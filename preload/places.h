#pragma once

#include <optional>
#include <string>

#include "client/api/stdchk.h"

namespace stdchk::preload {

/// Returns the path from the pool's root; nothing when `path` lies outside the prefix. A relative
/// path is the pool's when `folder` is a descriptor of a folder of the pool.
std::optional<std::string> place_of(int folder, const char* path);
std::optional<std::string> place_of(const char* path);

/// Returns the connection of this process, made by the first call; nullptr, with errno set, when
/// the pool cannot be reached. A forked child gets a connection of its own.
stdchk_pool* pool();

}  // namespace stdchk::preload
