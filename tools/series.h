#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.h"

namespace stdchk::tools {

/// How the chunks of a series of images are named by content, as its newest image shows.
enum class SeriesState : std::uint8_t {
  kOff,
  kDidNotPay,  ///< `auto` has stopped: only samples have names
  kUnnamed,    ///< one of both: its writer has not told
  kNamed,      ///< on, but little or nothing is in the image before
  kPays,       ///< on, and that finds some again
};
/// "did not pay".
std::string_view series_state_name(SeriesState state);

/// A SeriesReport looks at images A.Ni.Tj, and says for each series A.Ni of a directory whether
/// naming its chunks by content is off, did not pay, or pays: as the writer of the newest one told
/// with its commit. What was found again it reads from the chunk maps of the two newest.
class SeriesReport {
 public:
  struct Line {
    std::string series;  ///< "app.N0"
    std::string newest;  ///< the name of its newest image
    SeriesState state = SeriesState::kNamed;
    /// The share of the newest image's bytes that are in chunks of the one before it.
    double found_again = 0;
  };

  /// A file of another name, or without chunks in memory, is left out.
  void add(FileId directory, std::string_view name, NamingState naming, const ChunkMap& map);
  /// By directory, then by name.
  std::vector<Line> lines() const;

 private:
  using Place = std::pair<std::uint64_t, std::uint64_t>;  ///< benefactor, offset
  struct Image {
    std::string name;
    std::map<Place, std::uint64_t> chunks;  ///< their lengths
    NamingState naming = NamingState::kUnknown;
    bool has_unnamed = false;
  };
  /// By timestep; at most two.
  using Series = std::map<std::uint64_t, Image>;
  static Line line_of(const std::string& name, const Series& series);

  std::map<std::pair<FileId, std::string>, Series> series_;
};

}  // namespace stdchk::tools
