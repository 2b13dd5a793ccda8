#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A DrainLeftovers lists files in the temporary folder of the drain directory that no job writes. A
/// file waits to be dropped, waits for the next attempt, or is an old version that readers need.
///
/// Threads: the reactor's.
/// Errors: a file that no benefactor drops now is dropped later.
class DrainLeftovers {
 public:
  /// The rest of a failed attempt, which the next attempt continues.
  struct Attempt {
    Version version = 0;
    std::uint64_t number = 0;  ///< names the temporary file
    std::vector<bool> verified;
    Time late{};  ///< until then a lost benefactor may still write the file
  };

  explicit DrainLeftovers(Pool& pool) : pool_(pool) {}

  /// Drops temporary files of earlier managers, at `when`. The new epoch is not begun yet.
  void drop_earlier(Time when);
  /// Earlier managers' requests have ended: their temporary files may go now.
  void drop_earlier_now();

  /// Drops the temporary file of an attempt, or a file that was set aside, at `when`.
  void drop(FileId file, std::uint64_t number, Time when) { garbage_[{file, number}] = when; }
  void store(FileId file, Attempt attempt) { attempts_[file] = std::move(attempt); }
  /// Returns the attempt at this version that can be continued.
  std::optional<Attempt> attempt_at(FileId file, Version version) const;
  /// A job continues the attempt with this number.
  void continued(FileId file, std::uint64_t number);
  /// Drops all attempts, because the drain directory is short of space.
  void drop_attempts();
  /// A version was set aside, and stays while readers need it.
  void add_aside(FileId file, std::uint64_t number) { asides_.emplace(file, number); }

  /// Drops what nobody needs any more.
  void run();
  /// Asks a benefactor to drop the files whose time has come.
  void drop_due();

 private:
  using Key = std::pair<FileId, std::uint64_t>;
  void drop_attempts_if(bool all);

  Pool& pool_;
  std::map<FileId, Attempt> attempts_;
  std::map<Key, Time> garbage_;  ///< files to be dropped, and when
  std::set<Key> asides_;
};

}  // namespace stdchk::manager
