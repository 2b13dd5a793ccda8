#include "transport/verbs/completion_reader.h"

namespace stdchk::transport::verbs {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(20);

}  // namespace

std::optional<Completion> CompletionReader::next() {
  if (waiting_.empty()) return std::nullopt;
  const Completion completion = waiting_.front();
  waiting_.pop_front();
  return completion;
}

void CompletionReader::drop_received(std::uint32_t queue_pair) {
  while (read()) {
  }
  for (Completion& each : waiting_) {
    if (!each.is_receive || each.entry.qp_num != queue_pair || each.entry.wr_id == 0) continue;
    device_.receive_ended(*reinterpret_cast<Buffer*>(each.entry.wr_id));
    each.entry.wr_id = 0;
  }
}

bool CompletionReader::may_sleep() {
  if (!waiting_.empty() || clock_.now() - last_ < kSpin) return false;
  if (armed_) return true;
  armed_ = true;
  device_.arm();
  return !read();
}

}  // namespace stdchk::transport::verbs
