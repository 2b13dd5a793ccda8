#include "transport/verbs/message_flow.h"

#include <algorithm>
#include <utility>

namespace stdchk::transport::verbs {

void MessageFlow::add(std::vector<std::byte> bytes, FragmentKind kind) {
  waiting_bytes_ += bytes.size();
  waiting_.push_back({std::move(bytes), kind});
}

MessageFlow::Fragment MessageFlow::first() const {
  const Waiting& message = waiting_.front();
  const std::size_t left = message.bytes.size() - message.sent;
  return {ByteSpan(message.bytes).subspan(message.sent, std::min(left, kFragmentContentMax)),
          static_cast<std::uint32_t>(message.bytes.size()), message.kind};
}

void MessageFlow::drop_first(std::size_t bytes) {
  Waiting& message = waiting_.front();
  message.sent += bytes;
  if (message.sent < message.bytes.size()) return;
  waiting_bytes_ -= message.bytes.size();
  waiting_.pop_front();
}

FragmentHeader MessageFlow::header_for(std::uint32_t message_bytes, FragmentKind kind) {
  const FragmentHeader header{message_bytes, credits_to_return_, kind};
  peer_may_send_ = static_cast<std::uint16_t>(peer_may_send_ + credits_to_return_);
  credits_to_return_ = 0;
  if (kind != FragmentKind::kOnlyCredits) --credits_;
  return header;
}

Status MessageFlow::take(const FragmentHeader& header) {
  constexpr const char* kWhere = "verbs.credits";
  if (header.credits > kCredits - std::min(credits_, kCredits)) {
    return fail(Code::kMalformed, kWhere);
  }
  credits_ = static_cast<std::uint16_t>(credits_ + header.credits);
  if (header.kind == FragmentKind::kOnlyCredits) return {};
  if (peer_may_send_ == 0) return fail(Code::kMalformed, kWhere);
  --peer_may_send_;
  ++credits_to_return_;
  return {};
}

}  // namespace stdchk::transport::verbs
