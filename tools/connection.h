#pragma once

#include <memory>
#include <string>

#include "client/filesystem.h"
#include "core/limits.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// A connection to the pool's manager as a tool.
inline constexpr std::uint64_t kToolWindowBytes =
    4 * limits::kMiB;  ///< of one that moves no images
Outcome<std::unique_ptr<client::Filesystem>> connect(const PoolRecord& pool,
                                                     std::uint64_t window_bytes = kToolWindowBytes);

/// A path that a person gave, found in its pool.
struct Located {
  PoolRecord pool;
  std::string path;  ///< relative to the pool's root; "" is the root
  std::unique_ptr<client::Filesystem> filesystem;
  Attributes attributes;
};
/// `path` empty: the pool's root.
Outcome<Located> locate(const std::string& pool_directory, const std::string& path,
                        std::uint64_t window_bytes = kToolWindowBytes);

/// Calls `visit` with the path and attributes of `start` and of everything below it, in the order
/// of the names, until it returns false.
template <class Visit>
Outcome<bool> walk(client::Filesystem& filesystem, const std::string& path,
                   const Attributes& attributes, const Visit& visit) {
  if (!visit(path, attributes)) return false;
  if (attributes.type != FileType::kDirectory) return true;
  auto entries = filesystem.read_directory(attributes.id);
  if (!entries) return failed(path.empty() ? "/" : path, entries.error());
  for (const auto& entry : *entries) {
    const std::string child = path.empty() ? entry.name : path + "/" + entry.name;
    auto done = walk(filesystem, child, entry.attributes, visit);
    if (!done || !*done) return done;
  }
  return true;
}

}  // namespace stdchk::tools
