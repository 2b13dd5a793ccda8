#include "manager/clients/clients.h"

#include <utility>

namespace stdchk::manager {

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

}  // namespace stdchk::manager
