#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/messages/messages.h"
#include "core/reactor.h"
#include "transport/transport.h"

namespace stdchk::rpc {

/// What a server answers with.
struct Failure {
  Error error;
  std::string detail;
  Duration retry_after{};
};
using Answer = tl::expected<msg::Reply, Failure>;

/// A Responder carries one request's answer back. It may be kept and called later, once; a
/// Responder that is dropped uncalled answers kInternal. Calling it after the link has gone does
/// nothing.
///
/// Threads: the reactor's.
class Responder {
 public:
  class Channel;
  Responder() = default;
  Responder(std::weak_ptr<Channel> channel, std::uint64_t call_id);
  Responder(Responder&& other) noexcept;
  Responder& operator=(Responder&& other) noexcept;
  ~Responder();
  void operator()(Answer answer);
  explicit operator bool() const { return call_id_ != 0; }

 private:
  std::weak_ptr<Channel> channel_;
  std::uint64_t call_id_ = 0;
};

class Peer;

/// A PeerHandler serves one peer's requests and hears of its end.
class PeerHandler {
 public:
  virtual ~PeerHandler() = default;
  virtual void on_connected(Peer&) {}
  /// `deadline`: when the peer stops waiting.
  virtual void on_request(Peer& peer, msg::RequestEnvelope request, Time deadline,
                          Responder respond) = 0;
  virtual void on_notice(Peer&, msg::Notice) {}
  /// Every call in flight was answered with `why` before. The handler may destroy the peer.
  virtual void on_closed(Peer& peer, Error why) = 0;
};

/// A Peer sends requests and notices over one link and matches the replies.
///
/// Owns: the link.
/// Threads: the reactor's.
/// Errors: a call is answered exactly once, never from within call(): by the peer, with kDeadline,
///   with the reason why the link ended (kPeerLost when it had ended before), or with kBusy when
///   the outgoing queue is full. Calls made while the link still connects are kept and sent when it
///   is up. A peer that sends what is no message is closed with kMalformed. Destroying the Peer
///   drops its calls: their callbacks are destroyed, not called, because what they refer to may be
///   gone already. Who is still there and waits for answers calls close() first.
/// Limits: limits::kPeerQueueBytesMax wait for a link that is connecting or congested, in order.
/// Not: a retry, and not the suppression of repeats: (sender, call_id) lets the server see them.
class Peer final : public transport::LinkHandler {
 public:
  using Callback = std::function<void(Answer)>;

  /// Takes a link that on_accept gave.
  Peer(Reactor& reactor, std::unique_ptr<transport::Link> link, PeerHandler& handler);
  /// Starts a connection to the pool's manager; on_connected or on_closed follows. With a ticket:
  /// to the member that it names.
  static Result<std::unique_ptr<Peer>> connect(Reactor& reactor, transport::Endpoint& endpoint,
                                               std::string_view address, PeerHandler& handler,
                                               Duration deadline,
                                               const transport::secure::Ticket* ticket = nullptr);
  ~Peer() override;

  void call(msg::Request request, Duration deadline, Callback done);
  /// Sends a request that may have been sent before, on another link, under the same id: the server
  /// suppresses the repeat. `call_id` comes from next_call_id() of any peer of this sender.
  void call_as(std::uint64_t call_id, msg::Request request, Duration deadline, Callback done);
  Status notify(const msg::Notice& notice);
  /// Ends the peer as if the link had been lost because of `why`: answers the calls, then calls
  /// on_closed. Nothing happens when it has ended already. The link lives until the Peer is
  /// destroyed.
  void close(Error why);

  transport::Link& link() { return *link_; }
  bool connected() const { return link_ != nullptr && link_->connected(); }
  /// The sender number put on every request (client or benefactor id).
  void set_sender(std::uint64_t sender) { sender_ = sender; }

  // LinkHandler
  void on_connected(transport::Link& link) override;
  void on_message(transport::Link& link, ByteSpan message) override;
  void on_closed(transport::Link& link, Error why) override;

 private:
  struct Call {
    Callback done;
    TimerId timer;
    std::size_t kind = 0;   ///< index of the request, and so of the only reply that fits
    const char* name = "";  ///< of the request, for errors
  };
  friend class Responder::Channel;
  Peer(Reactor& reactor, PeerHandler& handler);
  Status send(const msg::Envelope& envelope);
  void flush();
  void finish(std::uint64_t call_id, Answer answer);
  void finish_later(std::uint64_t call_id, Code code, Duration delay);
  void respond(std::uint64_t call_id, Answer answer);
  void on_reply(msg::ReplyEnvelope reply);
  void on_request(msg::RequestEnvelope request);
  void close_later(Error why);

  Reactor& reactor_;
  PeerHandler& handler_;
  std::unique_ptr<transport::Link> link_;
  /// Knows whether this still exists, for responders and for code that has called a handler.
  std::shared_ptr<Responder::Channel> channel_;
  std::unordered_map<std::uint64_t, Call> calls_;
  std::deque<std::vector<std::byte>> queue_;  ///< encoded, while connecting or congested
  std::size_t queue_bytes_ = 0;
  TimerId flush_timer_;
  TimerId close_timer_;
  std::vector<std::byte> buffer_;
  std::uint64_t sender_ = 0;
  bool closed_ = false;
};

/// The number for a new call; never repeats within this process.
std::uint64_t next_call_id();

}  // namespace stdchk::rpc
