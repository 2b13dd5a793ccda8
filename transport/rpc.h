#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "transport/transport.h"

namespace stdchk::rpc {

/// A Failure is a server's negative answer.
struct Failure {
  Error error;
  std::string detail;
  Duration retry_after{};

  /// The server's own explanation; without one, the sentence of the error.
  std::string text() const { return detail.empty() ? describe(error) : detail; }
};
using Answer = tl::expected<msg::Reply, Failure>;

/// A Responder carries the answer to one request. It may be kept and called later, once. If it is
/// destroyed without a call, it answers kInternal. Calls after the link's end do nothing.
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

/// A PeerHandler serves the requests of one peer and is told when the peer ends.
class PeerHandler {
 public:
  virtual ~PeerHandler() = default;
  virtual void on_connected(Peer&) {}
  /// `deadline` is the time at which the peer stops waiting.
  virtual void on_request(Peer& peer, msg::RequestEnvelope request, Time deadline,
                          Responder respond) = 0;
  virtual void on_notice(Peer&, msg::Notice) {}
  /// Called after every call in flight was answered with `why`. The handler may destroy the peer.
  virtual void on_closed(Peer& peer, Error why) = 0;
};

/// A Peer sends requests and notices over one link, and matches replies to requests.
///
/// Calls made while the link connects are kept and sent when it is up. A peer that sends a
/// malformed message is closed with kMalformed. Destroying the Peer destroys the callbacks of its
/// calls without calling them, because their objects may be gone already. To have these calls
/// answered, call close() first.
///
/// Owns: the link.
/// Threads: the reactor's.
/// Errors: a call is answered exactly once, never from within call(). The answer is the peer's, or
///   kDeadline, or the reason why the link ended. It is kPeerLost if the link had ended before, and
///   kBusy if the outgoing queue is full.
/// Limits: limits::kPeerQueueBytesMax wait, in order, for a link that is connecting or congested.
/// Not: retries. Not: suppression of repeats; servers recognize them by (sender, call_id).
class Peer final : public transport::LinkHandler {
 public:
  using Callback = std::function<void(Answer)>;

  /// Takes a link from on_accept().
  Peer(Reactor& reactor, std::unique_ptr<transport::Link> link, PeerHandler& handler);
  /// Connects to the pool's manager, or to the member that `ticket` names. on_connected() or
  /// on_closed() follows.
  static Result<std::unique_ptr<Peer>> connect(Reactor& reactor, transport::Endpoint& endpoint,
                                               std::string_view address, PeerHandler& handler,
                                               Duration deadline,
                                               const transport::secure::Ticket* ticket = nullptr);
  ~Peer() override;

  void call(msg::Request request, Duration deadline, Callback done);
  /// Sends a request that another link may have carried before under the same `call_id`. The server
  /// suppresses repeats. `call_id` comes from next_call_id() of any peer of this sender.
  void call_as(std::uint64_t call_id, msg::Request request, Duration deadline, Callback done);
  Status notify(const msg::Notice& notice);
  /// Ends the peer as if the link had been lost because of `why`: answers the calls, then calls
  /// on_closed(). Does nothing if the peer has ended. The link lives until the Peer is destroyed.
  void close(Error why);

  transport::Link& link() { return *link_; }
  const transport::Link& link() const { return *link_; }
  bool connected() const { return link_ != nullptr && link_->connected(); }
  /// Sets the sender's number in every request: the id of a client or benefactor.
  void set_sender(std::uint64_t sender) { sender_ = sender; }

  // LinkHandler
  void on_connected(transport::Link& link) override;
  void on_message(transport::Link& link, ByteSpan message) override;
  void on_closed(transport::Link& link, Error why) override;

 private:
  struct Call {
    Callback done;
    TimerId timer;
    std::size_t kind = 0;   ///< index of the request's type; a reply must have the same
    const char* name = "";  ///< name of the request, for errors
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
  /// Knows whether this Peer still exists; for responders, and for code that has called a handler.
  std::shared_ptr<Responder::Channel> channel_;
  std::unordered_map<std::uint64_t, Call> calls_;
  /// Encoded messages that wait while the link connects or is congested.
  std::deque<std::vector<std::byte>> queue_;
  std::size_t queue_bytes_ = 0;
  TimerId flush_timer_;
  TimerId close_timer_;
  std::vector<std::byte> buffer_;
  std::uint64_t sender_ = 0;
  bool closed_ = false;
};

/// Returns a number for a new call; it never repeats within this process.
std::uint64_t next_call_id();

}  // namespace stdchk::rpc
