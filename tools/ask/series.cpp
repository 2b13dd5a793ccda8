#include "tools/ask/series.h"

#include <fmt/core.h>

#include "client/write/series_naming.h"
#include "core/chunk/sealed_chunk.h"
#include "core/policy/image_name.h"

namespace stdchk::tools {

std::string_view series_state_name(SeriesState state) {
  switch (state) {
    case SeriesState::kOff:
      return "off";
    case SeriesState::kDidNotPay:
      return "did not pay";
    case SeriesState::kUnnamed:
      return "off, or did not pay";
    case SeriesState::kNamed:
      return "on";
    case SeriesState::kPays:
      return "pays";
  }
  return "?";
}

void SeriesReport::add(FileId directory, std::string_view name, NamingState naming,
                       const ChunkMap& map) {
  const auto parsed = parse_image_name(name);
  if (!parsed) return;
  Image image;
  image.name = name;
  image.naming = naming;
  for (const Chunk& chunk : map.chunks) {
    // Chunks that only the drain directory holds have unknown names, so skip them.
    if (chunk.copies.empty()) continue;
    const Extent& first = chunk.copies.front();
    image.chunks[{first.benefactor.value, first.offset}] = chunk.length;
    image.has_unnamed = image.has_unnamed || !follows_from_content(chunk.name);
  }
  if (image.chunks.empty()) return;
  Series& series = series_[{directory, fmt::format("{}.N{}", parsed->application, parsed->node)}];
  series[parsed->timestep] = std::move(image);
  if (series.size() > 2) series.erase(series.begin());
}

SeriesReport::Line SeriesReport::line_of(const std::string& name, const Series& series) {
  const Image& newest = series.rbegin()->second;
  Line line{name, newest.name, SeriesState::kNamed, 0};
  if (series.size() > 1) {
    const Image& before = series.begin()->second;
    std::uint64_t bytes = 0;
    std::uint64_t found = 0;
    for (const auto& [place, length] : newest.chunks) {
      bytes += length;
      if (before.chunks.contains(place)) found += length;
    }
    line.found_again = static_cast<double>(found) / static_cast<double>(bytes);
  }
  if (newest.naming == NamingState::kOff) {
    line.state = SeriesState::kOff;
  } else if (newest.naming == NamingState::kDidNotPay) {
    line.state = SeriesState::kDidNotPay;
  } else if (newest.naming == NamingState::kUnknown && newest.has_unnamed) {
    line.state = SeriesState::kUnnamed;
  } else if (line.found_again * client::SeriesNaming::kPaysOneOf >= 1) {
    line.state = SeriesState::kPays;
  }
  return line;
}

std::vector<SeriesReport::Line> SeriesReport::lines() const {
  std::vector<Line> lines;
  for (const auto& [key, series] : series_) lines.push_back(line_of(key.second, series));
  return lines;
}

}  // namespace stdchk::tools
