#pragma once

#include <cerrno>
#include <memory>
#include <utility>

#include "benefactor/drainer.h"
#include "core/clock.h"

namespace stdchk::sim {

/// A FaultDrainer fails now and then: before it has done anything, or after it has done everything.
class FaultDrainer final : public benefactor::Drainer {
 public:
  /// `fail_ppm` may change at any time; it and `failed`, which counts, must outlive this.
  FaultDrainer(std::unique_ptr<benefactor::Drainer> inner, const std::uint32_t& fail_ppm,
               std::uint64_t& failed, std::uint64_t seed)
      : inner_(std::move(inner)), fail_ppm_(fail_ppm), failed_(failed), prng_(seed) {}

  benefactor::Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                            Time deadline) override {
    return with_faults([&] { return inner_->write_pieces(request, deadline); });
  }
  benefactor::Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request,
                                                      Time deadline) override {
    return with_faults([&] { return inner_->finish(request, deadline); });
  }
  benefactor::Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                                       Time deadline) override {
    return with_faults([&] { return inner_->mirror(request, deadline); });
  }

 private:
  template <class Work>
  auto with_faults(Work work) -> decltype(work()) {
    if (prng_.below(1000000) >= fail_ppm_) return work();
    ++failed_;
    if (prng_.chance(1, 2)) (void)work();
    return benefactor::problem(Code::kDrainFailed, "sim.drain", EIO, "A fault on purpose.");
  }

  std::unique_ptr<benefactor::Drainer> inner_;
  const std::uint32_t& fail_ppm_;
  std::uint64_t& failed_;
  Prng prng_;
};

}  // namespace stdchk::sim
