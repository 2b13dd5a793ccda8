#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/drain/file_fingerprint.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// A KnownFingerprints has the fingerprints of drained files whose bytes were verified: when they
/// were drained, or by a comparison.
///
/// Threads: the reactor's.
/// Limits: remembers a fingerprint for each file of the pool, and at most as many of removed files.
/// Not: durable. The next manager has files compared before it calls them safe.
class KnownFingerprints {
 public:
  using Done = std::function<void(const std::optional<std::vector<FileFingerprint>>& fingerprints)>;
  using Look = std::function<void(std::vector<std::string> paths, Duration limit, Done done)>;

  /// Sets the function that takes fingerprints of files by their paths below the drain directory
  /// (DrainedFingerprints::read()). Without a function, can_read() is false.
  void set_reader(Look look) { read_ = std::move(look); }
  bool can_read() const { return read_ != nullptr; }
  void read(std::vector<std::string> paths, Duration limit, Done done) const {
    read_(std::move(paths), limit, std::move(done));
  }

  /// Returns the verified fingerprint of the file's newest version; an unknown fingerprint without
  /// one.
  FileFingerprint of(const File& file) const;
  /// Records the fingerprint of a version that was verified. An unknown fingerprint changes
  /// nothing.
  void add(const State& state, FileId file, Version version, const FileFingerprint& fingerprint);

 private:
  struct Known {
    Version version = 0;
    FileFingerprint fingerprint;
  };
  Look read_;
  std::unordered_map<FileId, Known> known_;
};

}  // namespace stdchk::manager
