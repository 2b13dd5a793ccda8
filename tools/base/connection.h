#pragma once

#include <memory>
#include <string>

#include "client/api/filesystem.h"
#include "client/api/is_gone.h"
#include "core/base/limits.h"
#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// The window of a tool that transfers no images.
inline constexpr std::uint64_t kToolWindowBytes = 4 * limits::kMiB;
Outcome<std::unique_ptr<client::Filesystem>> connect(const PoolRecord& pool,
                                                     std::uint64_t window_bytes = kToolWindowBytes);

/// A path that the user gave, with the pool that it belongs to.
struct Located {
  PoolRecord pool;
  std::string path;  ///< relative to the pool's root; "" is the root
  std::unique_ptr<client::Filesystem> filesystem;
  Attributes attributes;
};
/// Finds the pool and connects to it. `path` empty: the pool's root.
Outcome<Located> locate(const std::string& pool_directory, const std::string& path,
                        std::uint64_t window_bytes = kToolWindowBytes);

/// Calls `visit` with the path and attributes of `start` and of everything below it, ordered by
/// name. Leaves out what is removed meanwhile. Stops when `visit` returns false.
template <class Visit>
Outcome<bool> walk(client::Filesystem& filesystem, const std::string& path,
                   const Attributes& attributes, const Visit& visit) {
  if (!visit(path, attributes)) return false;
  if (attributes.type != FileType::kDirectory) return true;
  auto entries = filesystem.read_directory(attributes.id);
  if (!entries && client::is_gone(entries.error())) return true;
  if (!entries) return failed(path.empty() ? "/" : path, entries.error());
  for (const auto& entry : *entries) {
    const std::string child = path.empty() ? entry.name : path + "/" + entry.name;
    auto done = walk(filesystem, child, entry.attributes, visit);
    if (!done || !*done) return done;
  }
  return true;
}

}  // namespace stdchk::tools
