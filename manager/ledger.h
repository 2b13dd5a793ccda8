#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/types.h"

namespace stdchk::manager {

/// A Ledger adds up what the report card of a pool says and its State does not know: what clients
/// tell of their writes and reads, time at risk, sets that the drain did not keep up with, waits
/// for room.
///
/// Threads: one. Not: durable; State::history() is.
/// Limits: each call is O(log n). An entry for each client that writes or reads, or has gone
///   without a goodbye, and for each application of a folder; at kKeptMax the latter are forgotten.
class Ledger {
 public:
  /// `totals`: of one client since it began, whatever number it has now. Earlier reports that come
  /// late or twice change nothing.
  void tell(const msg::WriterTotals& totals, const msg::ReaderTotals& reads = {});
  /// The last report of a client that ends: no other one may follow.
  void tell_last(const msg::WriterTotals& totals, const msg::ReaderTotals& reads = {});

  /// Called again and again: the pool is taken to have been since the last call as it was then.
  void look(Time now, bool at_risk);
  void note_fullness(std::uint64_t used_bytes, std::uint64_t total_bytes);

  /// An image was committed. True: with it a set begins that follows another one.
  bool begins_set(FileId folder, const std::string& application, std::uint64_t timestep);
  /// What came before that set was not drained yet.
  void overtaken() { ++totals_.sets_overtaken; }

  /// A writer has its room, or has given up.
  void waited_for_space(Duration time);

  /// Without what State::history() has.
  const msg::PoolTotals& totals() const { return totals_; }

 private:
  static constexpr std::size_t kKeptMax = 65536;

  msg::PoolTotals totals_;
  struct Told {
    msg::WriterTotals writes;
    msg::ReaderTotals reads;
  };
  std::unordered_map<ClientId, Told> told_;  ///< by the first number of each
  std::map<std::pair<FileId, std::string>, std::uint64_t> newest_set_;
  std::optional<Time> at_risk_since_;  ///< the last look, when there was something at risk
};

}  // namespace stdchk::manager
