#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "core/base/result.h"
#include "transport/tcp/content_channel.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/poller.h"
#include "transport/tcp/shared_regions.h"
#include "transport/tcp/tls.h"

namespace stdchk::transport::tcp {

/// A ClearContent moves the content of one link that goes around TLS: over a ContentChannel.
///
/// A header inside TLS announces each frame first. Both ends move announced frames in that order.
///
/// | channel is | leaves when                                                    |
/// |------------|----------------------------------------------------------------|
/// | absent     | connect() -> connecting; accept() -> ready                     |
/// | connecting | finish_connecting() -> ready                                   |
/// | ready      | close()                                                        |
///
/// Owns: the channel, and the announced frames; not their memory. Threads: the endpoint's.
/// Limits: kOutgoingMax frames to send, kIncomingMax frames to receive.
class ClearContent {
 public:
  /// Frames that are announced to the peer before the socket has taken them.
  static constexpr std::size_t kOutgoingMax = 4;
  /// Frames that the peer may announce before they come: more than the sockets hold.
  static constexpr std::size_t kIncomingMax = 1024;
  using Io = ContentChannel::Io;

  struct Frame {
    FrameHeader header;
    Target target;
    bool ends = false;  ///< the last frame of its transfer
  };

  ClearContent(Poller& poller, std::uint64_t link) : poller_(poller), link_(link) {}

  // Whether content goes in clear: the accepting end says so in its hello.
  void agree(bool in_use);
  bool in_use() const { return in_use_; }
  bool carries(const FrameHeader& header) const {
    return in_use_ && header.length > FrameHeader::kInlineBytesMax;
  }

  // The channel.
  bool has_channel() const { return channel_ != nullptr; }
  bool is_connecting() const { return connecting_; }
  /// Begins to connect to the peer of `tls`. The Poller reports when the socket is connected.
  Status connect(const TlsSession& tls);
  /// Sends the token that binds the channel to the link of `tls`.
  Status finish_connecting(const TlsSession& tls);
  /// Takes an accepted `socket`, whose token is(tls, token).
  void accept(const TlsSession& tls, int socket);
  static bool is_token(const TlsSession& tls, ByteSpan token);
  void close();
  /// The channel's socket is ready. Stops watching for content that no header has announced yet.
  void on_readable();

  // Frames to send.
  bool may_announce() const { return outgoing_.size() < kOutgoingMax; }
  void announce(Frame frame) { outgoing_.push_back(std::move(frame)); }
  bool has_to_send() const { return has_channel() && !outgoing_.empty(); }
  const Frame& next_to_send() const { return outgoing_.front(); }
  /// Sends the next frame as far as the socket has room. kDone: call end_send().
  Io send();
  void end_send() { outgoing_.pop_front(); }

  // Frames to receive.
  /// Returns false when too many frames are announced.
  bool expect(Frame frame);
  /// True when a part of the transfer of `header` is still to come on the channel.
  bool expects_part_of(const FrameHeader& header) const;
  bool has_to_receive() const { return has_channel() && !incoming_.empty(); }
  Frame& next_to_receive() { return incoming_.front(); }
  /// Receives the next frame as far as it has come. kDone: call end_receive().
  Io receive();
  Frame end_receive();

  /// True when an announced frame reads or writes memory of `region`.
  bool uses(const TcpRegion& region) const;

 private:
  /// Has the reactor woken for `events` of the channel's socket.
  void watch(std::uint32_t events);

  Poller& poller_;
  const std::uint64_t link_;
  bool in_use_ = false;
  bool connecting_ = false;
  std::unique_ptr<ContentChannel> channel_;
  std::uint32_t watched_ = 0;
  std::deque<Frame> outgoing_;
  std::deque<Frame> incoming_;
};

}  // namespace stdchk::transport::tcp
