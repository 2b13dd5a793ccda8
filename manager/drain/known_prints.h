#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/drain/file_print.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// A KnownPrints has the prints of drained files whose bytes were verified: when they were drained,
/// or by a comparison.
///
/// Threads: the reactor's.
/// Limits: remembers a print for each file of the pool, and at most as many of removed files.
/// Not: durable. The next manager has files compared before it calls them safe.
class KnownPrints {
 public:
  using Done = std::function<void(const std::optional<std::vector<FilePrint>>& prints)>;
  using Look = std::function<void(std::vector<std::string> paths, Duration limit, Done done)>;

  /// Sets the function that takes prints of files by their paths below the drain directory
  /// (DrainedPrints::read_prints()). Without a function, can_read_prints() is false.
  void set_reader(Look look) { read_prints_ = std::move(look); }
  bool can_read_prints() const { return read_prints_ != nullptr; }
  void read_prints(std::vector<std::string> paths, Duration limit, Done done) const {
    read_prints_(std::move(paths), limit, std::move(done));
  }

  /// Returns the verified print of the file's newest version; an unknown print without one.
  FilePrint of(const File& file) const;
  /// Records the print of a version that was verified. An unknown print changes nothing.
  void add(const State& state, FileId file, Version version, const FilePrint& print);

 private:
  struct Known {
    Version version = 0;
    FilePrint print;
  };
  Look read_prints_;
  std::unordered_map<FileId, Known> known_;
};

}  // namespace stdchk::manager
