#include "manager/state/command_counts.h"

namespace stdchk::manager {

bool CommandCounts::lacks(Epoch epoch, std::uint64_t sequence) const {
  const auto count = records_.find(epoch);
  return count != records_.end() && sequence > count->second;
}

void CommandCounts::begin(Epoch epoch) {
  const std::uint64_t before = epoch_ ? 0 : records_[epoch_];
  if (!same_block(epoch_, epoch)) records_.clear();
  epoch_ = epoch;
  records_[epoch_] = before;
}

void CommandCounts::count() {
  if (const auto count = records_.find(epoch_); count != records_.end()) ++count->second;
}

void CommandCounts::snapshot(RestoreCounters& counters) const {
  counters.epoch = epoch_;
  for (const auto& [epoch, records] : records_) counters.epochs.push_back({epoch, records});
}

void CommandCounts::restore(const RestoreCounters& counters) {
  epoch_ = counters.epoch;
  records_.clear();
  for (const EpochRecords& each : counters.epochs) records_[each.epoch] = each.records;
}

}  // namespace stdchk::manager
