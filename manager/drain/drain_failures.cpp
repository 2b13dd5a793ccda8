#include "manager/drain/drain_failures.h"

#include <algorithm>

namespace stdchk::manager {

void DrainFailures::failed(FileId file, Time now, bool storage_hung) {
  Failure& failure = failures_[file];
  failure.waits = false;
  failure.storage_hung = storage_hung;
  failure.last = now;
  failure.next = now + failure.back_off.next();
}

void DrainFailures::failed_for(FileId file, Time now, Duration wait) {
  Failure failure;
  failure.back_off.next();
  failure.last = now;
  failure.next = now + wait;
  failures_[file] = failure;
}

void DrainFailures::waits_for_copies(FileId file, Time now, Duration wait, bool may_return) {
  const auto [found, is_first] = failures_.try_emplace(file);
  Failure& failure = found->second;
  failure.waits = may_return && (is_first || failure.waits);
  if (!failure.back_off.is_failing()) failure.back_off.next();
  failure.last = now;
  failure.next = now + wait;
}

bool DrainFailures::may_try(FileId file, Time now) const {
  const auto failure = failures_.find(file);
  return failure == failures_.end() || now >= failure->second.next;
}

bool DrainFailures::has_failed(FileId file) const {
  const auto failure = failures_.find(file);
  return failure != failures_.end() && !failure->second.waits;
}

bool DrainFailures::storage_hung(FileId file) const {
  const auto failure = failures_.find(file);
  return failure != failures_.end() && failure->second.storage_hung;
}

void DrainFailures::try_soon(Failure& failure) {
  failure.back_off.reset();
  failure.next = std::min(failure.next, failure.last + kFirst);
}

void DrainFailures::try_soon(FileId file) {
  const auto failure = failures_.find(file);
  if (failure != failures_.end()) try_soon(failure->second);
}

void DrainFailures::try_all_soon() {
  for (auto& [file, failure] : failures_) try_soon(failure);
}

}  // namespace stdchk::manager
