#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::manager {

/// A Ledger adds up the figures of a pool's report card that State does not have. They are clients'
/// reports of writes and reads, time at risk, sets that overtook the drain, and waits for space.
///
/// Threads: one. Not: durable; State::history() is.
/// Limits: each call is O(log n). There is an entry for each client that writes or reads, kept if
/// the client ends without a last report. Each application in a folder has an entry, too; these are
/// dropped when they reach kKeptMax.
class Ledger {
 public:
  /// Adds what a client reports. `totals` cover the client's whole life, even if its id has
  /// changed. A report that is late or repeated changes nothing.
  void add_report(const msg::WriterTotals& totals, const msg::ReaderTotals& reads = {});
  /// Adds the last report of a client that ends. No other report of this client may follow.
  void add_last_report(const msg::WriterTotals& totals, const msg::ReaderTotals& reads = {});

  /// Samples whether data is at risk. The time since the previous call counts with the state
  /// sampled then.
  void sample_risk(Time now, bool at_risk);
  void note_fullness(std::uint64_t used_bytes, std::uint64_t total_bytes);

  /// Notes that an image was committed. If it begins a set that follows another set, returns the
  /// time since that set began.
  std::optional<Duration> begins_set(FileId folder, const std::string& application,
                                     std::uint64_t timestep, Time now);
  /// Counts a set whose predecessor was not yet drained when it began.
  void overtaken() { ++totals_.sets_overtaken; }

  /// Counts a writer's wait for space, whether it got space or gave up.
  void waited_for_space(Duration time);

  /// Lacks the figures that State::history() has.
  const msg::PoolTotals& totals() const { return totals_; }

 private:
  static constexpr std::size_t kKeptMax = 65536;

  msg::PoolTotals totals_;
  struct Reported {
    msg::WriterTotals writes;
    msg::ReaderTotals reads;
  };
  std::unordered_map<ClientId, Reported> reported_;  ///< last reports, by each client's first id
  struct NewestSet {
    std::uint64_t timestep = 0;
    Time began{};
  };
  std::map<std::pair<FileId, std::string>, NewestSet> newest_set_;
  std::optional<Time> at_risk_since_;  ///< time of the last sample, if data was at risk then
};

}  // namespace stdchk::manager
