#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>

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
  using Done = std::function<void(Status)>;

  explicit ExtentChecks(Service& service) : service_(service) {}
  /// `done` is called once: kDataLost when a chunk is not there or its benefactor is gone,
  /// kDeadline when not all were looked at by then. Not within this call.
  void start(Extents extents, Time deadline, Done done);
  /// Goes on; each turn of the manager's clock, and when a benefactor is there.
  void run();

 private:
  struct Check {
    Extents extents;  ///< not looked at yet; empty: all of that benefactor's were
    std::map<BenefactorId, std::size_t> in_flight;
    Time deadline{};
    Done done;
  };
  /// What ends the check now; nothing: it goes on.
  std::optional<Status> end_of(const Check& check) const;
  void send(std::uint64_t number, Check& check);
  void answered(std::uint64_t number, BenefactorId benefactor, const rpc::Answer& answer);
  void finish(std::uint64_t number, Status status);

  Service& service_;
  std::uint64_t made_ = 0;
  std::map<std::uint64_t, Check> checks_;
};

}  // namespace stdchk::manager
