#pragma once

#include <map>

#include "core/base/back_off.h"
#include "core/base/clock.h"
#include "core/values/types.h"

namespace stdchk::manager {

/// A DrainFailures knows the files whose drain has failed, and when each may be tried again.
///
/// Threads: one.
/// Limits: the wait after a failure doubles from 1 s to 60 s.
class DrainFailures {
 public:
  /// The drain of the file has failed. `storage_hung`: its storage did not answer.
  void failed(FileId file, Time now, bool storage_hung);
  /// The drain of the file needs a person to help first. Allows the next attempt after `wait`.
  void failed_for(FileId file, Time now, Duration wait);
  /// A chunk of the file has no copy that can be read now. `may_return`: a benefactor may bring one
  /// back, so the drain has not failed.
  void waits_for_copies(FileId file, Time now, Duration wait, bool may_return);
  /// The drain of the file has succeeded, or has become needless.
  void forget(FileId file) { failures_.erase(file); }

  /// Returns true when no wait keeps the drain from trying the file now.
  bool may_try(FileId file, Time now) const;
  /// Returns true when the last attempt has failed, and does not just wait for a benefactor.
  bool has_failed(FileId file) const;
  /// Returns true when storage did not answer in the last attempt.
  bool storage_hung(FileId file) const;
  /// Restarts the back-off. A waiting client asks repeatedly; its requests must not lengthen the
  /// back-off.
  void try_soon(FileId file);
  void try_all_soon();

 private:
  static constexpr Duration kFirst = std::chrono::seconds(1);
  static constexpr Duration kLongest = std::chrono::seconds(60);
  struct Failure {
    BackOff back_off{kFirst, kLongest};
    Time last{};
    Time next{};
    bool storage_hung = false;
    bool waits = false;  ///< for a benefactor that may come back: nothing has failed
  };
  static void try_soon(Failure& failure);

  std::map<FileId, Failure> failures_;
};

}  // namespace stdchk::manager
