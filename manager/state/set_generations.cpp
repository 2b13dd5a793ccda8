#include "manager/state/set_generations.h"

#include <algorithm>

namespace stdchk::manager {

void SetGenerations::add(FileId folder, const ImageName& image, std::uint64_t content) {
  Set& set = series_[{folder, image.application}].sets[image.timestep];
  ++set.images;
  set.newest = std::max(set.newest, content);
}

/// A set without images is forgotten: nothing is left that could mix with new images.
void SetGenerations::remove(FileId folder, const ImageName& image) {
  const auto series = series_.find({folder, image.application});
  if (series == series_.end()) return;
  const auto set = series->second.sets.find(image.timestep);
  if (set == series->second.sets.end() || --set->second.images > 0) return;
  set_whole(series->second, set->second, 0);
  series->second.sets.erase(set);
  if (series->second.sets.empty() && series->second.ended == 0) series_.erase(series);
}

const SetGenerations::Set* SetGenerations::find(FileId folder, const ImageName& image) const {
  const auto series = series_.find({folder, image.application});
  if (series == series_.end()) return nullptr;
  const auto set = series->second.sets.find(image.timestep);
  return set == series->second.sets.end() ? nullptr : &set->second;
}

void SetGenerations::set_whole(Series& series, Set& set, std::uint64_t images) {
  series.whole += (images > 0 ? 1U : 0U);
  series.whole -= (set.whole > 0 ? 1U : 0U);
  set.whole = images;
}

void SetGenerations::write(FileId folder, const ImageName& image, const Write& write) {
  Series& series = series_[{folder, image.application}];
  Set& set = series.sets[image.timestep];
  set.newest = std::max(set.newest, write.sequence);
  set_whole(series, set, 0);
  const auto ends = [&](std::uint64_t content, std::uint64_t begun) {
    return content > begun && content <= write.opened;
  };
  const std::uint64_t ended = std::max(series.ended, set.ended);
  if (ends(write.later, std::max(series.begun, series.ended))) series.begun = write.opened;
  set.begun = std::max({set.begun, series.begun, ended});
  if (write.replacing > set.begun) set.begun = series.begun = write.replacing;
  if (ends(write.replaced, set.begun)) set.begun = series.begun = write.opened;
  if (write.opened < ended) set.begun = write.sequence;
}

void SetGenerations::on_content_lost(FileId folder, const ImageName& image, std::uint64_t content,
                                     std::uint64_t now) {
  Series& series = series_[{folder, image.application}];
  Set& set = series.sets[image.timestep];
  if (content <= set.begun) return;
  set.begun = now;
  set_whole(series, set, 0);
}

void SetGenerations::begin(const BeginGeneration& command) {
  Series& series = series_[{command.directory, command.application}];
  series.begun = std::max(series.begun, command.begun);
  series.ended = std::max(series.ended, command.ended);
  for (const BeginGeneration::Set& from : command.sets) {
    Set& set = series.sets[from.timestep];
    if (from.begun > set.begun) set_whole(series, set, 0);
    if (from.whole > 0) set_whole(series, set, from.whole);
    set.begun = std::max(set.begun, from.begun);
    set.ended = std::max(set.ended, from.ended);
  }
}

void SetGenerations::forget(FileId folder) {
  auto at = series_.lower_bound({folder, {}});
  while (at != series_.end() && at->first.first == folder) at = series_.erase(at);
}

bool SetGenerations::has_later(FileId folder, const ImageName& image) const {
  const auto series = series_.find({folder, image.application});
  return series != series_.end() && !series->second.sets.empty() &&
         series->second.sets.rbegin()->first > image.timestep;
}

std::uint64_t SetGenerations::begun(FileId folder, const ImageName& image) const {
  const Set* const set = find(folder, image);
  return set == nullptr ? 0 : set->begun;
}

std::uint64_t SetGenerations::whole(FileId folder, const ImageName& image) const {
  const Set* const set = find(folder, image);
  return set == nullptr ? 0 : set->whole;
}

bool SetGenerations::has_complete_set(FileId folder) const {
  for (auto at = series_.lower_bound({folder, {}});
       at != series_.end() && at->first.first == folder; ++at) {
    if (at->second.whole > 0) return true;
  }
  return false;
}

std::uint64_t SetGenerations::newest(FileId folder, const ImageName& image) const {
  const Set* const set = find(folder, image);
  return set == nullptr ? 0 : set->newest;
}

std::uint64_t SetGenerations::ended(FileId folder, const ImageName& image) const {
  const auto series = series_.find({folder, image.application});
  if (series == series_.end()) return 0;
  const auto set = series->second.sets.find(image.timestep);
  const std::uint64_t of_set = set == series->second.sets.end() ? 0 : set->second.ended;
  return std::max(series->second.ended, of_set);
}

std::uint64_t SetGenerations::next_begun(FileId folder, const ImageName& image) const {
  const auto series = series_.find({folder, image.application});
  const std::uint64_t of_series = series == series_.end() ? 0 : series->second.begun;
  return std::max({of_series, begun(folder, image), ended(folder, image)});
}

void SetGenerations::snapshot(const std::function<void(Command)>& emit) const {
  for (const auto& [key, series] : series_) {
    BeginGeneration out{key.first, key.second, series.begun, series.ended, {}};
    for (const auto& [timestep, set] : series.sets) {
      if (set.begun == 0 && set.ended == 0 && set.whole == 0) continue;
      out.sets.push_back({timestep, set.begun, set.ended, set.whole});
    }
    if (out.begun > 0 || out.ended > 0 || !out.sets.empty()) emit(std::move(out));
  }
}

}  // namespace stdchk::manager
