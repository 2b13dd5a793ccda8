#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/values/types.h"

namespace stdchk::tools {

/// How the newest image shows that chunks of a series are named by content.
enum class SeriesState : std::uint8_t {
  kOff,
  kDidNotPay,  ///< `auto` has stopped: only samples have names
  kUnnamed,    ///< kOff or kDidNotPay: the writer has not reported which
  kNamed,      ///< on, but the previous image has few or no equal chunks
  kPays,       ///< on, and finds equal chunks
};
/// The state in words, for example "did not pay".
std::string_view series_state_name(SeriesState state);

/// A SeriesReport examines images A.Ni.Tj. For each series A.Ni of a directory it tells whether
/// naming chunks by content is off, did not pay, or pays. The writer of the newest image reports
/// this with its commit. The chunk maps of the two newest images show what was found again.
class SeriesReport {
 public:
  struct Line {
    std::string series;  ///< such as "app.N0"
    std::string newest;  ///< the name of its newest image
    SeriesState state = SeriesState::kNamed;
    /// The share of the newest image's bytes in chunks that the image before also has.
    double found_again = 0;
  };

  /// Adds an image. Ignores files with other names, or without chunks in memory.
  void add(FileId directory, std::string_view name, NamingState naming, const ChunkMap& map);
  /// By directory, then by name.
  std::vector<Line> lines() const;

 private:
  using Place = std::pair<std::uint64_t, std::uint64_t>;  ///< benefactor, offset
  struct Image {
    std::string name;
    std::map<Place, std::uint64_t> chunks;  ///< lengths by place
    NamingState naming = NamingState::kUnknown;
    bool has_unnamed = false;
  };
  /// By timestep; at most two.
  using Series = std::map<std::uint64_t, Image>;
  static Line line_of(const std::string& name, const Series& series);

  std::map<std::pair<FileId, std::string>, Series> series_;
};

}  // namespace stdchk::tools
