#pragma once

#include <string>

#include "benefactor/drain/drainer.h"
#include "benefactor/memory/stop.h"
#include "core/base/mutex.h"
#include "core/base/rate_limiter.h"
#include "core/files/drain_directory.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// A FileDrainer copies chunks from the arena to plain files in a directory, usually of a parallel
/// file system.
///
/// Bytes go to `.stdchk-drain/FILE.NUMBER` first, from several benefactors at once; only finish()
/// gives that file its name, when it is whole and durable. A crash at any point leaves at most a
/// temporary file. Each chunk is copied out of the arena, checked, written, read back and compared.
/// So a change of the arena meanwhile cannot reach the file.
///
/// A temporary file gets its name once. A repeated or late finish() finds no temporary file, and
/// succeeds only if the named file has the requested size and modification time.
///
/// Owns: nothing while no call runs. Threads: any; two calls for one path at once are the caller's
/// mistake. Limits: one buffer of the largest chunk of a request for each call under way.
class FileDrainer final : public Drainer {
 public:
  /// `arena`, `clock` and `stop` must outlive this.
  FileDrainer(ByteSpan arena, std::string directory, std::uint64_t rate, const Clock& clock,
              Stop& stop);

  /// A request without pieces makes an empty temporary file: for files that have no bytes.
  Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                Time deadline) override;
  Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request, Time deadline) override;
  Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                           Time deadline) override;
  Outcome<msg::FindDrained::Reply> find(const msg::FindDrained& request, Time deadline) override;

 private:
  struct Writing;
  class WriteTurn;
  Outcome<void> open_files(Writing& writing);
  Outcome<void> open_base(Writing& writing, const DrainFolder& root);
  Outcome<ByteSpan> load_piece(Writing& writing, std::uint32_t index);
  Outcome<void> verify(Writing& writing);
  Outcome<msg::DrainPieces::Reply> compare(Writing& writing);
  Outcome<void> write_and_sync(Writing& writing);
  Outcome<void> write_piece(Writing& writing, std::uint32_t index);
  Outcome<void> wait_for_rate(std::uint64_t bytes, Time deadline);
  Outcome<void> give_up_check(Time deadline) const;

  ByteSpan arena_;
  const DrainDirectory directory_;
  RateLimiter limiter_;
  const Clock& clock_;
  Stop& stop_;
  Mutex turn_mutex_;
  CondVar turn_over_;
  bool turn_taken_ STDCHK_GUARDED_BY(turn_mutex_) = false;
};

}  // namespace stdchk::benefactor
