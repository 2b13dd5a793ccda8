#include <utility>

#include "core/base/limits.h"
#include "transport/secure/handshake.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/link.h"

namespace stdchk::transport::tcp {
namespace {

/// A link receives so many bytes before other links have their turn.
constexpr std::size_t kReceiveBytesPerTurn = 2 * limits::kMiB;
constexpr std::size_t kClearFramesPerTurn = 16;

constexpr Error kWrongVersion{Code::kRefused, 0,
                              "handshake: the protocol's versions differ; use one version of "
                              "stdchk on all hosts"};

}  // namespace

bool TcpLink::receive() {
  if (clear_.in_use() && !receive_clear()) return false;
  for (std::size_t bytes = 0; bytes < kReceiveBytesPerTurn;) {
    if (!frame_.may_write_target()) return refuse_frame();
    const TlsSession::Got got = tls_->read(frame_.room());
    if (got.io == TlsSession::Io::kBlocked) return false;
    if (got.io == TlsSession::Io::kLost) return fail_link("tcp.link");
    bytes += got.bytes;
    if (frame_.add(got.bytes) && !on_header()) return false;
    if (frame_.is_complete() && !on_content()) return false;
  }
  return true;
}

/// A frame that no honest peer sends ends the link, and has changed nothing.
bool TcpLink::refuse_frame() {
  endpoint_.end(*this, {Code::kMalformed, 0, "tcp.frame"});
  return false;
}

/// Says where the content of the frame goes.
bool TcpLink::on_header() {
  if (!frame_.decode()) return refuse_frame();
  const FrameHeader& header = frame_.header();
  if ((header.type == FrameType::kHello) != (state_ == State::kGreeting)) return refuse_frame();
  switch (header.type) {
    case FrameType::kHello:
      return true;
    case FrameType::kMessage:
    case FrameType::kGrant:
      frame_.expect_message();
      return true;
    case FrameType::kWrite:
      return on_write(header);
    case FrameType::kWritten:
      return on_written(header);
    case FrameType::kRead:
      return on_read(header);
    case FrameType::kReadData:
      return on_read_data(header);
  }
  return refuse_frame();
}

bool TcpLink::on_write(const FrameHeader& header) {
  // An honest peer has at most kTransfersMax writes in flight: this peer does not wait for answers.
  if (header.last && !queue_.reserve_answer()) return refuse_frame();
  Target target = shared_.target(header);
  if (target.pieces.left() == 0) return refuse_frame();
  return expect(header, std::move(target), header.last);
}

bool TcpLink::on_written(const FrameHeader& header) {
  const Transfer* const transfer = transfers_.find(header.id, true);
  return (transfer != nullptr && transfer->sent) || refuse_frame();
}

bool TcpLink::on_read(const FrameHeader& header) {
  const Target target = shared_.target(header);
  if (target.pieces.left() == 0 || !queue_.reserve_answer()) return refuse_frame();
  queue_.answer_read(header.id, target);
  endpoint_.mark_ready(*this);
  return true;
}

bool TcpLink::on_read_data(const FrameHeader& header) {
  Transfer* const transfer = transfers_.find(header.id, false);
  if (transfer == nullptr || header.offset != transfer->received ||
      header.length > transfer->pieces.left()) {
    return refuse_frame();
  }
  Target target{.pieces = transfer->pieces.take(header.length)};
  transfer->received += header.length;
  return expect(header, std::move(target), transfer->pieces.left() == 0);
}

/// Has the content of the frame put into `target`. `ends`: the frame is its transfer's last.
bool TcpLink::expect(const FrameHeader& header, Target target, bool ends) {
  if (clear_.carries(header)) {
    return clear_.expect({header, std::move(target), ends}) || refuse_frame();
  }
  // The frame would end a transfer of which a part is still to come on the channel. That part
  // would be written to memory that its owner has back.
  if (clear_.expects_part_of(header)) return refuse_frame();
  frame_.expect_content(std::move(target));
  return true;
}

/// The frame is complete.
bool TcpLink::on_content() {
  const FrameHeader header = frame_.header();
  frame_.next();
  switch (header.type) {
    case FrameType::kHello:
      return on_hello(header);
    case FrameType::kMessage:
      return on_message();
    case FrameType::kGrant:
      return on_grant(header);
    case FrameType::kWrite:
      return clear_.carries(header) ? receive_clear() : on_written_here(header);
    case FrameType::kWritten:
      return finish(header, true);
    case FrameType::kRead:
      return state_ == State::kOpen;
    case FrameType::kReadData:
      if (clear_.carries(header)) return receive_clear();
      return on_read_here(header, transfers_.find(header.id, false)->pieces.left() == 0);
  }
  return state_ == State::kOpen;
}

bool TcpLink::on_hello(const FrameHeader& header) {
  if (header.id != secure::kProtocolVersion) {
    endpoint_.end(*this, kWrongVersion);
    return false;
  }
  clear_.agree(accepted_ ? endpoint_.trusts_network() : header.key == 1);
  const Lifetime::Watch alive = lifetime_.watch();
  endpoint_.on_greeted(*this);
  return !alive.expired() && state_ == State::kOpen;
}

bool TcpLink::on_message() {
  if (handler_ == nullptr) return refuse_frame();
  const Lifetime::Watch alive = lifetime_.watch();
  std::vector<std::byte> message = frame_.take_message();  // outlives the link
  handler_->on_message(*this, message);
  if (alive.expired()) return false;
  frame_.give_back(std::move(message));
  return state_ == State::kOpen;
}

/// The peer has presented a grant. Nobody but the region's owner can make a valid grant.
bool TcpLink::on_grant(const FrameHeader& header) {
  const auto content = GrantContent::decode(frame_.message().first<GrantContent::kBytes>());
  return shared_.present(header, content) || refuse_frame();
}

/// Memory has a part of a write that the peer started.
bool TcpLink::on_written_here(const FrameHeader& header) {
  transfers_.part_moved();
  if (header.last) {
    queue_.answer_write(header.id);
    endpoint_.mark_ready(*this);
  }
  return state_ == State::kOpen;
}

/// Memory has a part of a read that this end started.
bool TcpLink::on_read_here(const FrameHeader& header, bool ends) {
  if (ends) return finish(header, false);
  transfers_.part_moved();
  return true;
}

/// The transfer of this end has ended well.
bool TcpLink::finish(const FrameHeader& header, bool is_write) {
  transfers_.part_moved();
  const Lifetime::Watch alive = lifetime_.watch();
  transfers_.finish(*transfers_.find(header.id, is_write), {});
  return !alive.expired() && state_ == State::kOpen;
}

/// Takes announced content from the channel as far as it has come.
bool TcpLink::receive_clear() {
  for (std::size_t frames = 0; clear_.has_to_receive(); ++frames) {
    if (frames == kClearFramesPerTurn) {
      more_to_read_ = true;
      endpoint_.mark_ready(*this);
      return true;
    }
    if (!clear_.next_to_receive().target.guard.is_write_allowed()) return refuse_frame();
    const TlsSession::Io io = clear_.receive();
    if (io == TlsSession::Io::kBlocked) return true;
    if (io == TlsSession::Io::kLost) return fail_link("tcp.content");
    const ClearContent::Frame frame = clear_.end_receive();
    const bool is_write = frame.header.type == FrameType::kWrite;
    const bool goes_on =
        is_write ? on_written_here(frame.header) : on_read_here(frame.header, frame.ends);
    if (!goes_on) return false;
  }
  return true;
}

}  // namespace stdchk::transport::tcp
