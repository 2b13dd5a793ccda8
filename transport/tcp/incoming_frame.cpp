#include "transport/tcp/incoming_frame.h"

#include "core/base/limits.h"

namespace stdchk::transport::tcp {
namespace {

/// Memory for messages that is kept for the next message.
constexpr std::size_t kKeptBytes = 16 * limits::kKiB;

}  // namespace

bool IncomingFrame::decode() {
  const auto header = FrameHeader::decode(bytes_);
  if (header) header_ = *header;
  return header.has_value();
}

void IncomingFrame::expect_message() {
  message_.resize(header_.length);
  target_ = {.pieces = Pieces(MutableByteSpan(message_))};
}

void IncomingFrame::give_back(std::vector<std::byte> message) {
  if (message.capacity() <= kKeptBytes) message_ = std::move(message);
}

}  // namespace stdchk::transport::tcp
