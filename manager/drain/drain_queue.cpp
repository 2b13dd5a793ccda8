#include "manager/drain/drain_queue.h"

namespace stdchk::manager {

void DrainQueue::add(FileId file, DrainRank rank) {
  const Place place = next_place(rank);
  const auto [known, is_new] = places_.try_emplace(file, place);
  if (!is_new) {
    if (known->second.first <= rank) return;
    order_.erase(known->second);
    known->second = place;
  }
  order_.emplace(place, file);
}

void DrainQueue::visit(const std::function<Visit(FileId file, Place place)>& visit) {
  for (auto each = order_.begin(); each != order_.end();) {
    const auto [place, file] = *each;
    const Visit next = visit(file, place);
    if (next == Visit::kStop) return;
    const auto known = places_.find(file);
    if (next == Visit::kRemove && known != places_.end() && known->second == place) {
      places_.erase(known);
      order_.erase(place);
    }
    each = order_.upper_bound(place);
  }
}

}  // namespace stdchk::manager
