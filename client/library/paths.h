#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "client/api/filesystem.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client::library {

/// Says whether a path that ends at a symbolic link means the link or its target.
enum class LastLink : std::uint8_t { kStay, kFollow };

/// A Place is where a path ends: an existing folder, and a name in it that may be free.
struct Place {
  FileId parent{};
  std::string name;                      ///< empty when the path ends at the root, or with ".."
  std::optional<Attributes> attributes;  ///< empty: the folder has no such name
};

/// Walks `path` from the root of the pool. The attributes of the last part are fresh.
///
/// Errors: kNotFound and kNotDirectory for a part before the last; ELOOP after 40 links; EXDEV for
///   a link with an absolute target.
Result<Place> walk(Filesystem& filesystem, std::string_view path, LastLink last);
/// Like walk(). Fails with kNotFound when the last part does not exist.
Result<Attributes> find(Filesystem& filesystem, std::string_view path, LastLink last);
/// Like find(). Fails with kNotDirectory when the path is not a folder.
Result<Attributes> find_folder(Filesystem& filesystem, std::string_view path);

}  // namespace stdchk::client::library
