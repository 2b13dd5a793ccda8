#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "client/filesystem.h"
#include "tools/problem.h"
#include "tools/series.h"

namespace stdchk::tools {

/// A Usage is what some files say of themselves, and what they take: chunks that several of them
/// share, or that one has several times, count once.
struct Usage {
  std::uint64_t files = 0;
  std::uint64_t logical_bytes = 0;  ///< their sizes
  std::uint64_t stored_bytes =
      0;  ///< content of their chunks in benefactors' memory, one copy each
  std::uint64_t drained_bytes = 0;  ///< of their chunks in the drain directory only
  std::uint64_t unnamed_bytes = 0;  ///< of `stored_bytes`: could not be found equal to others
  std::uint64_t chunks = 0;

  void add(const Attributes& attributes, const ChunkMap& map);

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> places_;  ///< benefactor, offset
};

/// Of all files below a directory, or of one file. Files that go meanwhile are left out. Images
/// below a directory are added to `series`.
Outcome<Usage> measure_usage(client::Filesystem& filesystem, const Attributes& below,
                             SeriesReport& series);
/// Adds an image of a directory and the others of its series. Those that go meanwhile are left out.
Outcome<void> look_at_series(client::Filesystem& filesystem, FileId directory,
                             std::string_view image, SeriesReport& series);

}  // namespace stdchk::tools
