#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/base/result.h"
#include "core/messages/messages.h"
#include "manager/clients/fences.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// ExtentChecks asks benefactors whether chunks are stored there, whole, before the manager relies
/// on them. It asks a benefactor only when clients of earlier epochs are fenced there, so nobody
/// can change the chunks after the check.
///
/// Owns: the checks under way. Threads: one.
class ExtentChecks {
 public:
  using Extents = std::map<BenefactorId, std::deque<msg::CheckExtents::Checked>>;
  /// The extents that were not found.
  struct Missing {
    std::set<BenefactorId> benefactors;  ///< all extents asked for there count as missing
    std::set<Extent> extents;
    /// kDataLost: an extent is not there, or its benefactor is gone. kDeadline: the deadline came
    /// before all were checked. Empty: all extents are there.
    std::optional<Error> why;
    bool contains(const Extent& extent) const {
      return benefactors.contains(extent.benefactor) || extents.contains(extent);
    }
  };
  using Done = std::function<void(const Missing&)>;

  ExtentChecks(Pool& pool, const Fences& fences) : pool_(pool), fences_(fences) {}
  /// Calls `done` once: when every extent was checked or its benefactor is gone, or at the
  /// deadline. Never calls it within start().
  void start(Extents extents, Time deadline, Done done);
  /// Continues the checks. Called in each turn of the manager's clock, and
  /// when a benefactor arrives.
  void run();

 private:
  struct Check {
    /// To be checked; the entry of a benefactor stays, empty, when all its extents are checked.
    Extents extents;
    std::map<BenefactorId, std::size_t> in_flight;
    Time deadline{};
    Done done;
    Missing missing{};
  };
  bool has_ended(Check& check) const;
  void send(std::uint64_t number, Check& check);
  void answered(std::uint64_t number, BenefactorId benefactor, const rpc::Answer& answer);

  Pool& pool_;
  const Fences& fences_;
  std::uint64_t made_ = 0;
  std::map<std::uint64_t, Check> checks_;
};

}  // namespace stdchk::manager
