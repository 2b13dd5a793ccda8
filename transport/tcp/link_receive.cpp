#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "transport/secure/handshake.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/link.h"

namespace stdchk::transport::tcp {
namespace {

/// Of one link, before others have their turn.
constexpr std::size_t kReceiveBytesPerTurn = 2 * limits::kMiB;
/// Memory for messages that is kept for the next one.
constexpr std::size_t kKeptBytes = 16 * limits::kKiB;
/// Content frames that a peer may announce before they come: what sockets hold, and more.
constexpr std::size_t kAnnouncedMax = 1024;
constexpr std::size_t kClearFramesPerTurn = 16;

constexpr Error kWrongVersion{Code::kRefused, 0,
                              "handshake: the protocol's versions differ; use one version of "
                              "stdchk on all hosts"};

}  // namespace

bool TcpLink::receive() {
  if (in_clear_ && !receive_clear()) return false;
  for (std::size_t bytes = 0; bytes < kReceiveBytesPerTurn;) {
    const bool in_header = header_got_ < header_.size();
    if (!in_header && !is_still_granted(in_, in_check_, in_revision_)) return refuse_frame();
    const TlsSession::Got got =
        tls_->read(in_header ? MutableByteSpan(header_).subspan(header_got_) : content_.front());
    if (got.io == TlsSession::Io::kBlocked) return false;
    if (got.io == TlsSession::Io::kLost) {
      endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.link"});
      return false;
    }
    bytes += got.bytes;
    if (in_header) {
      header_got_ += got.bytes;
      if (header_got_ < header_.size()) continue;
      if (!on_header()) return false;
    } else {
      content_.drop(got.bytes);
    }
    if (content_.left() == 0 && !on_content()) return false;
  }
  return true;
}

/// What an honest peer never sends ends the link, and has changed nothing.
bool TcpLink::refuse_frame() {
  endpoint_.end(*this, {Code::kMalformed, 0, "tcp.frame"});
  return false;
}

/// Says where the content of the frame goes. False: the link has ended.
bool TcpLink::on_header() {
  const auto header = FrameHeader::decode(header_);
  if (!header || (header->type == FrameType::kHello) != (state_ == State::kGreeting)) {
    return refuse_frame();
  }
  in_ = *header;
  switch (in_.type) {
    case FrameType::kHello:
      return true;
    case FrameType::kMessage:
      message_.resize(in_.length);
      content_ = Pieces(MutableByteSpan(message_));
      return true;
    case FrameType::kWrite:
      return on_write(in_);
    case FrameType::kWritten:
      return on_written(in_);
    case FrameType::kRead:
      return on_read(in_);
    case FrameType::kReadData:
      return on_read_data(in_);
    case FrameType::kGrant:
      message_.resize(in_.length);
      content_ = Pieces(MutableByteSpan(message_));
      return true;
  }
  return refuse_frame();
}

/// The memory that the peer reaches for. Empty: it must not.
TcpLink::Target TcpLink::region_part(const FrameHeader& header, bool writes) {
  const auto found = shared_.find(header.key);
  if (found == shared_.end() || (writes && !found->second.writable)) return {};
  const Shared& shared = found->second;
  const MutableByteSpan memory = shared.region->bytes();
  if (header.offset > memory.size() || header.length > memory.size() - header.offset) return {};
  Target target{Pieces(memory.subspan(header.offset, header.length)), shared.region, nullptr, 0};
  if (writes && shared.check != nullptr) {
    if (!shared.check->may_write(header.offset, header.length)) return {};
    target.check = shared.check;
    target.revision = shared.check->revision();
  }
  return target;
}

bool TcpLink::is_still_granted(const FrameHeader& header, const std::shared_ptr<WriteCheck>& check,
                               std::uint64_t& revision) {
  if (check == nullptr || check->revision() == revision) return true;
  revision = check->revision();
  return check->may_write(header.offset, header.length);
}

/// The peer has presented a grant. False: nobody made it, and the link has ended.
bool TcpLink::on_grant() {
  const auto found = shared_.find(in_.key);
  if (found == shared_.end() || found->second.check == nullptr) return refuse_frame();
  const auto content = GrantContent::decode(ByteSpan(message_).first<GrantContent::kBytes>());
  const Grant grant{.id = GrantId{in_.id},
                    .offset = in_.offset,
                    .length = content.length,
                    .proof_low = content.proof_low,
                    .proof_high = content.proof_high};
  return found->second.check->present(grant) || refuse_frame();
}

bool TcpLink::on_write(const FrameHeader& header) {
  // Nobody has more writes in flight than that: this is one that does not wait for their ends.
  if (header.last && answers_ >= kTransfersMax) return refuse_frame();
  const Target target = region_part(header, true);
  if (target.pieces.left() == 0) return refuse_frame();
  if (header.last) ++answers_;
  if (goes_in_clear(header)) {
    return announce(
        {header, target.pieces, target.region, header.last, target.check, target.revision});
  }
  if (overtakes(header)) return refuse_frame();
  content_ = target.pieces;
  in_region_ = target.region;
  in_check_ = target.check;
  in_revision_ = target.revision;
  return true;
}

bool TcpLink::on_written(const FrameHeader& header) {
  const Transfer* const transfer = find_transfer(header.id, true);
  return (transfer != nullptr && transfer->sent) || refuse_frame();
}

bool TcpLink::on_read(const FrameHeader& header) {
  const Target target = region_part(header, false);
  if (answers_ >= kTransfersMax || target.pieces.left() == 0) return refuse_frame();
  ++answers_;
  contents_.push_back({.next = {.type = FrameType::kReadData, .id = header.id},
                       .pieces = target.pieces,
                       .region = target.region});
  endpoint_.mark_ready(*this);
  return true;
}

bool TcpLink::on_read_data(const FrameHeader& header) {
  Transfer* const transfer = find_transfer(header.id, false);
  if (transfer == nullptr || header.offset != transfer->received ||
      header.length > transfer->pieces.left()) {
    return refuse_frame();
  }
  const Pieces pieces = transfer->pieces.take(header.length);
  transfer->received += header.length;
  if (goes_in_clear(header)) {
    return announce({header, pieces, nullptr, transfer->pieces.left() == 0, nullptr, 0});
  }
  if (overtakes(header)) return refuse_frame();
  content_ = pieces;
  return true;
}

/// All of a frame is here. False: the link has ended, or was destroyed.
bool TcpLink::on_content() {
  header_got_ = 0;
  const Lifetime::Watch alive = lifetime_.watch();
  switch (in_.type) {
    case FrameType::kHello:
      return on_hello();
    case FrameType::kMessage: {
      if (handler_ == nullptr) return refuse_frame();
      std::vector<std::byte> message = std::exchange(message_, {});  // outlives the link
      handler_->on_message(*this, message);
      if (alive.expired()) return false;
      if (message.capacity() <= kKeptBytes) message_ = std::move(message);
      break;
    }
    case FrameType::kWrite:
      in_region_ = nullptr;
      in_check_.reset();
      if (goes_in_clear(in_)) return receive_clear();
      return on_written_here(in_);
    case FrameType::kWritten: {
      moved_ = endpoint_.clock().now();
      finish(*find_transfer(in_.id, true), {});
      if (alive.expired()) return false;
      break;
    }
    case FrameType::kRead:
      break;
    case FrameType::kGrant:
      return on_grant();
    case FrameType::kReadData:
      if (goes_in_clear(in_)) return receive_clear();
      return on_read_here(in_, find_transfer(in_.id, false)->pieces.left() == 0);
  }
  return state_ == State::kOpen;
}

/// A part of a peer's write is in memory. False: the link has ended.
bool TcpLink::on_written_here(const FrameHeader& header) {
  moved_ = endpoint_.clock().now();
  if (header.last) {
    notes_.push_back({.type = FrameType::kWritten, .id = header.id});
    endpoint_.mark_ready(*this);
  }
  return state_ == State::kOpen;
}

/// A part of an own read is in memory. False: the link has ended, or was destroyed.
bool TcpLink::on_read_here(const FrameHeader& header, bool ends) {
  moved_ = endpoint_.clock().now();
  if (!ends) return true;
  const Lifetime::Watch alive = lifetime_.watch();
  finish(*find_transfer(header.id, false), {});
  return !alive.expired() && state_ == State::kOpen;
}

/// Takes announced content from the channel as far as it has come. False: the link has ended, or
/// was destroyed.
bool TcpLink::receive_clear() {
  for (std::size_t frames = 0; channel_ != nullptr && !clear_in_.empty(); ++frames) {
    if (frames == kClearFramesPerTurn) {
      more_to_read_ = true;
      endpoint_.mark_ready(*this);
      return true;
    }
    ClearFrame& front = clear_in_.front();
    if (!is_still_granted(front.header, front.check, front.revision)) return refuse_frame();
    if (!channel_->is_receiving()) channel_->begin_receive(front.pieces);
    const TlsSession::Io io = channel_->receive();
    if (io == TlsSession::Io::kBlocked) {
      endpoint_.watch_channel(*this, true, channel_room_);
      return true;
    }
    if (io == TlsSession::Io::kLost) {
      endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.content"});
      return false;
    }
    if (!on_clear_frame()) return false;
  }
  return true;
}

/// The content of the frame will come on the channel.
bool TcpLink::announce(const ClearFrame& frame) {
  if (clear_in_.size() >= kAnnouncedMax) return refuse_frame();
  clear_in_.push_back(frame);
  return true;
}

/// True: the frame would end a transfer of which a part is still to come on the channel, and would
/// be written to memory that its owner has back.
bool TcpLink::overtakes(const FrameHeader& header) const {
  return std::ranges::any_of(clear_in_, [&](const ClearFrame& frame) {
    return frame.header.id == header.id && frame.header.type == header.type;
  });
}

bool TcpLink::on_clear_frame() {
  const ClearFrame frame = clear_in_.front();
  clear_in_.pop_front();
  if (frame.header.type == FrameType::kWrite) return on_written_here(frame.header);
  return on_read_here(frame.header, frame.ends);
}

bool TcpLink::on_hello() {
  if (in_.id != secure::kProtocolVersion) {
    endpoint_.end(*this, kWrongVersion);
    return false;
  }
  in_clear_ = accepted_ ? endpoint_.trusts_network() : in_.key == 1;
  const Lifetime::Watch alive = lifetime_.watch();
  endpoint_.on_greeted(*this);
  return !alive.expired() && state_ == State::kOpen;
}

}  // namespace stdchk::transport::tcp
