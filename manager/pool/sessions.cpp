#include "manager/pool/sessions.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::manager {

bool GrantRecord::overlaps_used(std::uint64_t offset, std::uint64_t bytes) const {
  auto next = used.lower_bound(offset);
  if (next != used.end() && next->first < offset + bytes) return true;
  if (next == used.begin()) return false;
  --next;
  return next->first + next->second > offset;
}

void Rewriters::remove(const Image& image) {
  const auto set = sets_.find(image.set);
  if (set == sets_.end()) return;
  const auto [first, last] = set->second.equal_range(image.written);
  const auto found =
      std::find_if(first, last, [&](const auto& each) { return each.second == image.opened; });
  if (found != last) set->second.erase(found);
  if (set->second.empty()) sets_.erase(set);
}

std::uint64_t Rewriters::opened(const Set& set, std::uint64_t begun) const {
  const auto found = sets_.find(set);
  if (found == sets_.end()) return 0;
  const auto image = found->second.upper_bound(begun);
  return image == found->second.end() ? 0 : image->second;
}

RecentReplies::~RecentReplies() {
  const rpc::Failure failure{Error{Code::kFenced, 0, "manager.repeat"}, {}, {}};
  for (auto& [call_id, entry] : entries_) {
    for (rpc::Responder& respond : entry.waiting) respond(tl::unexpected(failure));
  }
}

RecentReplies::Seen RecentReplies::begin(std::uint64_t call_id, rpc::Responder& respond) {
  const auto found = entries_.find(call_id);
  if (found != entries_.end()) {
    if (found->second.answered) {
      respond(found->second.answer);
      return Seen::kAnswered;
    }
    found->second.waiting.push_back(std::move(respond));
    return Seen::kRunning;
  }
  entries_[call_id];
  order_.push_back(call_id);
  while (order_.size() > kReplies && entries_[order_.front()].answered) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
  return Seen::kNew;
}

void RecentReplies::finish(std::uint64_t call_id, const rpc::Answer& answer) {
  const auto found = entries_.find(call_id);
  if (found == entries_.end()) return;
  found->second.answered = true;
  found->second.answer = answer;
  for (rpc::Responder& respond : found->second.waiting) respond(answer);
  found->second.waiting.clear();
}

void Watchers::watch(FileId directory, ClientId client, Time now) {
  // Twice the lease: the client's own lease begins only when the answer arrives.
  directories_[directory][client] = now + 2 * limits::kCacheLease;
}

void Watchers::forget_old(Time now) {
  for (auto directory = directories_.begin(); directory != directories_.end();) {
    std::erase_if(directory->second, [&](const auto& watch) { return watch.second < now; });
    directory = directory->second.empty() ? directories_.erase(directory) : std::next(directory);
  }
}

}  // namespace stdchk::manager
