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

  /// Sets who takes prints of files, by their paths below the drain directory, as
  /// DrainedPrints::look() does. Without it nobody does.
  void set_look(Look look) { look_ = std::move(look); }
  bool can_look() const { return look_ != nullptr; }
  void look(std::vector<std::string> paths, Duration limit, Done done) const {
    look_(std::move(paths), limit, std::move(done));
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
  Look look_;
  std::unordered_map<FileId, Known> known_;
};

}  // namespace stdchk::manager
