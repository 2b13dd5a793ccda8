#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "benefactor/drain/drainer.h"
#include "core/base/clock.h"

namespace stdchk::sim {

/// Faults of the storage to which a pool drains.
struct StorageFaults {
  std::uint32_t fail_ppm = 0;  ///< failing jobs in a million
  bool full = false;           ///< every write fails
};

struct StorageCounts {
  std::uint64_t failed = 0;  ///< jobs failed with EIO
  std::uint64_t full = 0;    ///< jobs failed with ENOSPC
};

/// A FaultDrainer fails random jobs, either before or after their execution. While the storage is
/// full, it writes the first half of the pieces and gives no file its name.
///
/// Not: short of room for names. The manager abandons a change of names that fails several times.
class FaultDrainer final : public benefactor::Drainer {
 public:
  /// `faults` may change at any time. `faults` and `counts` must outlive this object.
  FaultDrainer(std::unique_ptr<benefactor::Drainer> inner, const StorageFaults& faults,
               StorageCounts& counts, std::uint64_t seed)
      : inner_(std::move(inner)), faults_(faults), counts_(counts), prng_(seed) {}

  stdchk::Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                        Time deadline) override {
    if (faults_.full) {
      msg::DrainPieces half = request;
      half.pieces.resize(request.pieces.size() / 2);
      (void)inner_->write_pieces(half, deadline);
      return no_room();
    }
    return with_faults([&] { return inner_->write_pieces(request, deadline); });
  }
  stdchk::Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request,
                                                  Time deadline) override {
    if (faults_.full) return no_room();
    return with_faults([&] { return inner_->finish(request, deadline); });
  }
  stdchk::Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                                   Time deadline) override {
    return with_faults([&] { return inner_->mirror(request, deadline); });
  }
  stdchk::Outcome<msg::FindDrained::Reply> find(const msg::FindDrained& request,
                                                Time deadline) override {
    return with_faults([&] { return inner_->find(request, deadline); });
  }

 private:
  tl::unexpected<stdchk::Problem> no_room() {
    ++counts_.full;
    return stdchk::problem(Code::kDrainFailed, "sim.drain", ENOSPC, "Full on purpose.");
  }
  template <class Work>
  auto with_faults(Work work) -> decltype(work()) {
    if (prng_.below(1000000) >= faults_.fail_ppm) return work();
    ++counts_.failed;
    if (prng_.chance(1, 2)) (void)work();
    return stdchk::problem(Code::kDrainFailed, "sim.drain", EIO, "A fault on purpose.");
  }

  std::unique_ptr<benefactor::Drainer> inner_;
  const StorageFaults& faults_;
  StorageCounts& counts_;
  Prng prng_;
};

}  // namespace stdchk::sim
