#pragma once

#include "core/base/clock.h"
#include "core/base/problem.h"
#include "core/messages/messages.h"

namespace stdchk::benefactor {

/// A Drainer carries out the manager's drain requests on some storage.
///
/// Threads: any, several calls at once; calls block.
/// Errors: kDrainFailed with the errno of the storage, kInvalidArgument for an invalid request,
/// kDeadline and kCancelled for abandoned work. The manager may repeat a request after any error.
class Drainer {
 public:
  virtual ~Drainer() = default;
  /// See msg::DrainPieces. Stops with kDeadline when `deadline` has come. An attempt of number 0
  /// writes nothing: it compares whole chunks at `base_path` with their checksums.
  virtual Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                        Time deadline) = 0;
  /// See msg::DrainFinish: after success the file is whole and durable under its name (rule M6).
  /// No name changes after the deadline, because the manager may have asked other benefactors
  /// since.
  virtual Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request,
                                                  Time deadline) = 0;
  virtual Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                                   Time deadline) = 0;
  /// See msg::FindDrained. Changes nothing.
  virtual Outcome<msg::FindDrained::Reply> find(const msg::FindDrained& request, Time deadline) = 0;
};

}  // namespace stdchk::benefactor
