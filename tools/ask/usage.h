#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "client/api/filesystem.h"
#include "tools/ask/series.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A Usage is the total size of a group of files, and the space that they take. A chunk that occurs
/// several times counts once.
struct Usage {
  std::uint64_t files = 0;
  std::uint64_t logical_bytes = 0;  ///< sum of the files' sizes
  std::uint64_t stored_bytes =
      0;  ///< content of their chunks in benefactors' memory, one copy each
  std::uint64_t drained_bytes = 0;  ///< content of chunks that only the drain directory holds
  /// part of `stored_bytes` without names, which never matches other chunks
  std::uint64_t unnamed_bytes = 0;
  std::uint64_t chunks = 0;

  void add(const Attributes& attributes, const ChunkMap& map);

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> places_;  ///< benefactor, offset
};

/// Measures all files below a directory, or one file. Skips files that vanish meanwhile. Adds
/// images below a directory to `series`.
Outcome<Usage> measure_usage(client::Filesystem& filesystem, const Attributes& below,
                             SeriesReport& series);
/// Adds a directory's image, and the other images of its series. Skips files that vanish meanwhile.
Outcome<void> add_series_usage(client::Filesystem& filesystem, FileId directory,
                               std::string_view image, SeriesReport& series);

}  // namespace stdchk::tools
