#include "transport/tcp/send_queue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/tcp/tls.h"

namespace stdchk::transport::tcp {
namespace {

/// A transfer sends so many bytes before the next transfer has its turn. A chunk goes out as a
/// whole, and a long transfer does not delay short transfers.
constexpr std::size_t kBurstBytes = 2 * limits::kMiB;

}  // namespace

bool SendQueue::add_message(ByteSpan message) {
  if (messages_.size() >= kQueuedMessagesMax || message_bytes_ + message.size() > kQueuedBytesMax) {
    return false;
  }
  messages_.emplace_back(message.begin(), message.end());
  message_bytes_ += message.size();
  return true;
}

void SendQueue::add_grant(const FrameHeader& header, const GrantContent& content) {
  grants_.push_back({header, content.encode()});
}

bool SendQueue::reserve_answer() {
  if (answers_ >= kTransfersMax) return false;
  ++answers_;
  return true;
}

void SendQueue::answer_write(std::uint64_t id) {
  add_note({.type = FrameType::kWritten, .id = id});
}

void SendQueue::answer_read(std::uint64_t id, const Target& target) {
  add_content({.next = {.type = FrameType::kReadData, .id = id},
               .pieces = target.pieces,
               .region = target.region});
}

ByteSpan SendQueue::next_record() {
  static thread_local std::array<std::byte, TlsSession::kRecordBytesMax> gathered;
  std::size_t used = 0;
  returned_ = {};
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
        if (!out_.left()) {
          returned_ = std::move(out_.message);
          end_frame();
        }
        return front;
      }
    }
    if (!out_.left()) end_frame();
  }
  return ByteSpan(gathered).first(used);
}

void SendQueue::begin_frame(const FrameHeader& header, Pieces content) {
  out_.header = header.encode();
  out_.header_left = out_.header.size();
  out_.content = content;
}

void SendQueue::end_frame() {
  if (out_.is_content) transfers_.part_sent(out_.write);
  out_ = {};
}

bool SendQueue::next_frame() {
  if (!notes_.empty()) {
    const FrameHeader header = notes_.front();
    notes_.pop_front();
    if (header.type == FrameType::kWritten) --answers_;
    begin_frame(header);
    return true;
  }
  if (!grants_.empty()) {
    const PresentedGrant& first = grants_.front();
    out_.message.assign(first.content.begin(), first.content.end());
    begin_frame(first.header, Pieces(MutableByteSpan(out_.message)));
    grants_.pop_front();
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

std::size_t SendQueue::next_length(const Content& content) const {
  const std::size_t left = content.pieces.left();
  const std::size_t length = std::min(left, FrameHeader::kContentBytesMax);
  // The last frame of a long transfer must not be short: it would go inside TLS, unlike the frames
  // before it.
  const bool leaves_little = left > length && left - length <= FrameHeader::kInlineBytesMax;
  return clear_.in_use() && leaves_little ? left / 2 : length;
}

void SendQueue::next_content() {
  Content& content = contents_.front();
  const std::size_t length = next_length(content);
  const bool ends = content.pieces.left() == length;
  const bool is_write = content.next.type == FrameType::kWrite;
  FrameHeader header = content.next;
  header.length = static_cast<std::uint32_t>(length);
  header.last = is_write && ends;
  const Pieces pieces = content.pieces.take(length);
  if (clear_.carries(header)) {
    begin_frame(header);
    clear_.announce({header, {.pieces = pieces, .region = content.region}, ends});
  } else {
    begin_frame(header, pieces);
    out_.is_content = true;
    out_.region = content.region;
    out_.write = is_write && ends ? header.id : 0;
  }
  content.next.offset += length;
  content.burst_bytes += length;
  if (ends) {
    if (!is_write) --answers_;
    contents_.pop_front();
  } else if (content.burst_bytes >= kBurstBytes && contents_.size() > 1) {
    content.burst_bytes = 0;
    Content turned = std::move(content);
    contents_.pop_front();
    contents_.push_back(std::move(turned));
  }
}

bool SendQueue::reads(const TcpRegion& region) const {
  return out_.region == &region || std::ranges::any_of(contents_, [&](const Content& content) {
           return content.region == &region;
         });
}

}  // namespace stdchk::transport::tcp
