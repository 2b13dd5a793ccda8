#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/messages/messages.h"
#include "core/result.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;

/// ExtentChecks have benefactors look whether chunks are there, whole, before something is built on
/// them. A benefactor is asked when clients of earlier epochs are fenced there: nobody changes what
/// it has looked at.
///
/// Owns: the checks under way. Threads: one.
class ExtentChecks {
 public:
  using Extents = std::map<BenefactorId, std::deque<msg::CheckExtents::Checked>>;
  /// What was not found.
  struct Missing {
    std::set<BenefactorId> benefactors;  ///< all that was asked for of these
    std::set<Extent> extents;
    /// kDataLost: one is not there or its benefactor is gone; kDeadline: not all were looked at by
    /// then. Nothing: all are there.
    std::optional<Error> why;
    bool contains(const Extent& extent) const {
      return benefactors.contains(extent.benefactor) || extents.contains(extent);
    }
  };
  using Done = std::function<void(const Missing&)>;

  explicit ExtentChecks(Service& service) : service_(service) {}
  /// `done` is called once, when each was looked at or its benefactor is gone, or at the deadline.
  /// Not within this call.
  void start(Extents extents, Time deadline, Done done);
  /// Goes on; each turn of the manager's clock, and when a benefactor is there.
  void run();

 private:
  struct Check {
    Extents extents;  ///< not looked at yet; empty: all of that benefactor's were
    std::map<BenefactorId, std::size_t> in_flight;
    Time deadline{};
    Done done;
    Missing missing{};
  };
  bool has_ended(Check& check) const;
  void send(std::uint64_t number, Check& check);
  void answered(std::uint64_t number, BenefactorId benefactor, const rpc::Answer& answer);

  Service& service_;
  std::uint64_t made_ = 0;
  std::map<std::uint64_t, Check> checks_;
};

}  // namespace stdchk::manager
