#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/free_space.h"

namespace stdchk::manager {

class Service;

/// LostTargets are ranges that a benefactor was asked to write to and did not answer for: it may
/// still do it. A benefactor answers such requests in their order, so the answer to a later one
/// says that nothing of the lost one is under way; then the range is free.
///
/// Threads: the reactor's.
class LostTargets {
 public:
  /// `later` is a request of the same kind that asks for nothing.
  LostTargets(Service& service, msg::Request later) : service_(service), later_(std::move(later)) {}
  void add(BenefactorId benefactor, std::vector<Range> ranges);
  /// Asks those whose turn it is.
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

  Service& service_;
  const msg::Request later_;
  std::map<std::uint64_t, Lost> lost_;
  std::uint64_t made_ = 0;
};

}  // namespace stdchk::manager
