#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/link.h"

namespace stdchk::transport::tcp {
namespace {

/// Of one link, before others have their turn.
constexpr std::size_t kSendBytesPerTurn = 2 * limits::kMiB;
/// Of one transfer, before the next one has its turn: a chunk goes out as a whole, and a long
/// transfer does not hold up short ones.
constexpr std::size_t kBurstBytes = 2 * limits::kMiB;
/// Content frames that are announced before the socket has taken them.
constexpr std::size_t kAnnouncedMax = 4;

}  // namespace

bool TcpLink::anything_to_send() const {
  return out_.left() || !notes_.empty() || !presented_.empty() || !messages_.empty() ||
         may_send_content();
}

bool TcpLink::may_send_content() const {
  return !contents_.empty() && (!in_clear_ || clear_out_.size() < kAnnouncedMax);
}

bool TcpLink::pump() {
  if (state_ == State::kConnecting || state_ == State::kProving || state_ == State::kClosed) {
    return false;
  }
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
    if (!pump_clear(bytes)) return false;
    if (io == TlsSession::Io::kBlocked || !anything_to_send()) return false;
    if (bytes >= kSendBytesPerTurn) return true;
  }
}

/// A part of a transfer is out of our hands. `write`: the one that it was the last part of, or 0.
void TcpLink::content_sent(std::uint64_t write) {
  moved_ = endpoint_.clock().now();
  Transfer* const transfer = write == 0 ? nullptr : find_transfer(write, true);
  if (transfer != nullptr) transfer->sent = true;
}

/// Sends content in clear that has been announced. False: the link has ended.
bool TcpLink::pump_clear(std::size_t& bytes) {
  if (channel_ == nullptr) return true;
  while (!clear_out_.empty()) {
    const ClearFrame& frame = clear_out_.front();
    if (!channel_->is_sending()) channel_->begin_send(frame.pieces);
    const TlsSession::Io io = channel_->send();
    if (io == TlsSession::Io::kLost) {
      endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.content"});
      return false;
    }
    endpoint_.watch_channel(*this, channel_content_, io == TlsSession::Io::kBlocked);
    if (io == TlsSession::Io::kBlocked) return true;
    const bool ends_write = frame.ends && frame.header.type == FrameType::kWrite;
    content_sent(ends_write ? frame.header.id : 0);
    bytes += frame.header.length;
    clear_out_.pop_front();
  }
  return true;
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
  if (out_.is_content) content_sent(out_.write);
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
  if (!presented_.empty()) {
    const Presented& first = presented_.front();
    out_.message.assign(first.content.begin(), first.content.end());
    begin_frame(first.header, Pieces(MutableByteSpan(out_.message)));
    presented_.pop_front();
    return true;
  }
  // Messages and content take turns, so that neither waits for all of the other.
  if (!messages_.empty() && (!may_send_content() || !message_was_last_)) {
    message_was_last_ = true;
    out_.message = std::move(messages_.front());
    messages_.pop_front();
    message_bytes_ -= out_.message.size();
    begin_frame(
        {.type = FrameType::kMessage, .length = static_cast<std::uint32_t>(out_.message.size())},
        Pieces(MutableByteSpan(out_.message)));
    return true;
  }
  if (!may_send_content()) return false;
  message_was_last_ = false;
  next_content();
  return true;
}

void TcpLink::next_content() {
  Content& content = contents_.front();
  const std::size_t left = content.pieces.left();
  std::size_t length = std::min(left, FrameHeader::kContentBytesMax);
  // The end of a long transfer must not be short: it would go another way than what is before it.
  const bool leaves_little = left > length && left - length <= FrameHeader::kInlineBytesMax;
  if (in_clear_ && leaves_little) length = left / 2;
  FrameHeader header = content.next;
  header.length = static_cast<std::uint32_t>(length);
  const bool ends = content.pieces.left() == length;
  const bool is_write = header.type == FrameType::kWrite;
  header.last = is_write && ends;
  const Pieces pieces = content.pieces.take(length);
  if (goes_in_clear(header)) {
    begin_frame(header);
    clear_out_.push_back({header, pieces, content.region, ends});
  } else {
    begin_frame(header, pieces);
    out_.is_content = true;
    out_.region = content.region;
    out_.write = is_write && ends ? header.id : 0;
  }
  content.next.offset += length;
  content.burst += length;
  if (ends) {
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
