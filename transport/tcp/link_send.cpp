#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/assert.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/link.h"

namespace stdchk::transport::tcp {
namespace {

/// Of one link, before others have their turn.
constexpr std::size_t kSendBytesPerTurn = 2 * limits::kMiB;
/// Of one transfer, before the next one has its turn: a chunk goes out as a whole, and a long
/// transfer does not hold up short ones.
constexpr std::size_t kBurstBytes = 2 * limits::kMiB;

}  // namespace

bool TcpLink::anything_to_send() const {
  return out_.left() || !notes_.empty() || !messages_.empty() || !contents_.empty();
}

bool TcpLink::pump() {
  if (state_ != State::kOpen && state_ != State::kGreeting) return false;
  for (std::size_t bytes = 0;;) {
    while (tls_->has_room() && anything_to_send()) {
      const ByteSpan record = next_record();
      bytes += record.size();
      if (!tls_->write(record)) {
        endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.send"});
        return false;
      }
    }
    const TlsSession::Io io = tls_->flush();
    if (io == TlsSession::Io::kLost) {
      endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.send"});
      return false;
    }
    endpoint_.watch_room(*this, io == TlsSession::Io::kBlocked);
    if (io == TlsSession::Io::kBlocked || !anything_to_send()) return false;
    if (bytes >= kSendBytesPerTurn) return true;
  }
}

/// The next bytes of the stream of frames: straight from memory where a whole record lies there,
/// otherwise gathered.
ByteSpan TcpLink::next_record() {
  static thread_local std::array<std::byte, TlsSession::kRecordBytesMax> gathered;
  std::size_t used = 0;
  while (used < gathered.size() && (out_.left() || next_frame())) {
    const std::size_t room = gathered.size() - used;
    if (out_.header_left > 0) {
      const std::size_t part = std::min(out_.header_left, room);
      std::memcpy(gathered.data() + used,
                  out_.header.data() + out_.header.size() - out_.header_left, part);
      out_.header_left -= part;
      used += part;
    } else {
      const MutableByteSpan all = out_.content.front();
      const MutableByteSpan front = all.first(std::min(all.size(), room));
      const std::size_t part = front.size();
      const bool direct = used == 0 && part == gathered.size();
      if (!direct) std::memcpy(gathered.data() + used, front.data(), part);
      used += part;
      out_.content.drop(part);
      if (direct) {
        if (!out_.left()) end_frame();
        return front;
      }
    }
    if (!out_.left()) end_frame();
  }
  return ByteSpan(gathered).first(used);
}

void TcpLink::begin_frame(const FrameHeader& header, Pieces content) {
  out_.header = header.encode();
  out_.header_left = out_.header.size();
  out_.content = content;
}

void TcpLink::end_frame() {
  if (out_.write != nullptr) out_.write->sent = true;
  if (out_.is_content) moved_ = endpoint_.clock().now();
  out_ = {};
}

/// False: there is none.
bool TcpLink::next_frame() {
  if (!notes_.empty()) {
    const FrameHeader header = notes_.front();
    notes_.pop_front();
    if (header.type == FrameType::kWritten) --answers_;
    begin_frame(header);
    return true;
  }
  // Messages and content take turns, so that neither waits for all of the other.
  if (!messages_.empty() && (contents_.empty() || !message_was_last_)) {
    message_was_last_ = true;
    out_.message = std::move(messages_.front());
    messages_.pop_front();
    message_bytes_ -= out_.message.size();
    begin_frame(
        {.type = FrameType::kMessage, .length = static_cast<std::uint32_t>(out_.message.size())},
        Pieces(MutableByteSpan(out_.message)));
    return true;
  }
  if (contents_.empty()) return false;
  message_was_last_ = false;
  next_content();
  return true;
}

void TcpLink::next_content() {
  Content& content = contents_.front();
  const std::size_t length = std::min(content.pieces.left(), FrameHeader::kContentBytesMax);
  FrameHeader header = content.next;
  header.length = static_cast<std::uint32_t>(length);
  const bool ends = content.pieces.left() == length;
  const bool is_write = header.type == FrameType::kWrite;
  header.last = is_write && ends;
  begin_frame(header, content.pieces.take(length));
  out_.is_content = true;
  out_.region = content.region;
  content.next.offset += length;
  content.burst += length;
  if (ends) {
    if (is_write) out_.write = find_transfer(header.id, true);
    if (!is_write) --answers_;
    contents_.pop_front();
  } else if (content.burst >= kBurstBytes && contents_.size() > 1) {
    content.burst = 0;
    Content turned = std::move(content);
    contents_.pop_front();
    contents_.push_back(std::move(turned));
  }
}

}  // namespace stdchk::transport::tcp
