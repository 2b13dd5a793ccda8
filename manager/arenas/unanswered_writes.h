#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/pool/pool.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

/// UnansweredWrites are ranges that a benefactor was asked to write, and for which it did not
/// answer: the write may still happen. A benefactor serves requests of one kind in order. The
/// answer to a later request therefore proves that the lost one is over, and its range becomes
/// free.
///
/// Threads: the reactor's.
class UnansweredWrites {
 public:
  /// `later` is an empty request of the same kind as the lost ones.
  UnansweredWrites(Pool& pool, msg::Request later) : pool_(pool), later_(std::move(later)) {}
  void add(BenefactorId benefactor, std::vector<Range> ranges);
  /// Sends `later` to each benefactor whose retry time has come.
  void ask();
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, lost] : lost_) {
      for (const Range& range : lost.ranges) visit(lost.benefactor, range);
    }
  }

 private:
  struct Lost {
    BenefactorId benefactor;
    std::vector<Range> ranges;
    Time next{};
  };
  void answered(std::uint64_t number, bool good);

  Pool& pool_;
  const msg::Request later_;
  std::map<std::uint64_t, Lost> lost_;
  std::uint64_t made_ = 0;
};

}  // namespace stdchk::manager
