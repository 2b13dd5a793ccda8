#include "manager/sessions/ledger.h"

#include <algorithm>

namespace stdchk::manager {
namespace {

/// The fields summed over all clients. `longest_call_ns` is not summed: its maximum counts.
constexpr std::uint64_t msg::WriterTotals::*kWrites[] = {
    &msg::WriterTotals::closed_bytes,    &msg::WriterTotals::open_to_close_ns,
    &msg::WriterTotals::committed_bytes, &msg::WriterTotals::open_to_commit_ns,
    &msg::WriterTotals::named_bytes,     &msg::WriterTotals::equal_bytes,
    &msg::WriterTotals::naming_ns,
};
constexpr std::uint64_t msg::ReaderTotals::*kReads[] = {&msg::ReaderTotals::pool_bytes,
                                                        &msg::ReaderTotals::cached_bytes,
                                                        &msg::ReaderTotals::drained_bytes};

/// Adds to `all` by how much each field of `now` exceeds `before`, then raises `before` to it.
template <class Totals, std::size_t kCount>
void add(Totals& all, Totals& before, const Totals& now,
         std::uint64_t Totals::*const (&counts)[kCount]) {
  for (const auto count : counts) {
    if (now.*count <= before.*count) continue;
    all.*count += now.*count - before.*count;
    before.*count = now.*count;
  }
}

std::uint64_t nanoseconds(Duration time) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

void Ledger::add_report(const msg::WriterTotals& totals, const msg::ReaderTotals& reads) {
  msg::WriterTotals& all = totals_.writers;
  all.longest_call_ns = std::max(all.longest_call_ns, totals.longest_call_ns);
  // A client that neither wrote nor read has nothing to report.
  const bool wrote =
      totals.closed_bytes > 0 || totals.committed_bytes > 0 || totals.named_bytes > 0;
  if (!totals.first || (!wrote && reads == msg::ReaderTotals{})) return;
  Reported& before = reported_[totals.first];
  add(all, before.writes, totals, kWrites);
  add(totals_.readers, before.reads, reads, kReads);
}

void Ledger::add_last_report(const msg::WriterTotals& totals, const msg::ReaderTotals& reads) {
  add_report(totals, reads);
  reported_.erase(totals.first);
}

void Ledger::sample_risk(Time now, bool at_risk) {
  if (at_risk_since_) totals_.at_risk_ns += nanoseconds(now - *at_risk_since_);
  at_risk_since_ = at_risk ? std::optional(now) : std::nullopt;
}

void Ledger::note_fullness(std::uint64_t used_bytes, std::uint64_t total_bytes) {
  if (total_bytes == 0) return;
  const double part = static_cast<double>(used_bytes) / static_cast<double>(total_bytes);
  totals_.fullest_permille =
      std::max(totals_.fullest_permille, static_cast<std::uint32_t>(part * 1000));
}

std::optional<Duration> Ledger::begins_set(FileId folder, const std::string& application,
                                           std::uint64_t timestep, Time now) {
  if (newest_set_.size() >= kKeptMax) newest_set_.clear();
  const NewestSet set{timestep, now};
  const auto [newest, is_first] = newest_set_.try_emplace({folder, application}, set);
  if (is_first || timestep <= newest->second.timestep) return std::nullopt;
  const Duration since = now - newest->second.began;
  newest->second = set;
  ++totals_.sets;
  return since;
}

void Ledger::waited_for_space(Duration time) {
  ++totals_.space_waits;
  totals_.space_wait_ns += nanoseconds(time);
}

}  // namespace stdchk::manager
