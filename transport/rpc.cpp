#include "transport/rpc.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/messages/codec.h"

namespace stdchk::rpc {
namespace {

constexpr const char* kWhere = "rpc";

template <class Rep, class Period>
std::uint32_t to_ms(std::chrono::duration<Rep, Period> duration) {
  // Rounds up: a deadline or a back-off above zero must not become zero.
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(ms, 0, std::numeric_limits<std::uint32_t>::max()));
}

Answer failed(Code code, const char* where) {
  return tl::unexpected<Failure>(Failure{Error{code, 0, where}, {}, {}});
}

}  // namespace

std::uint64_t next_call_id() {
  static std::atomic<std::uint64_t> made{0};
  return made.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// A Channel connects responders with the peer as long as the peer exists.
class Responder::Channel {
 public:
  explicit Channel(Peer& peer) : peer_(&peer) {}
  bool open() const { return peer_ != nullptr; }
  void close() { peer_ = nullptr; }
  void respond(std::uint64_t call_id, Answer answer) {
    if (peer_ != nullptr) peer_->respond(call_id, std::move(answer));
  }

 private:
  Peer* peer_;
};

// ---- Responder

Responder::Responder(std::weak_ptr<Channel> channel, std::uint64_t call_id)
    : channel_(std::move(channel)), call_id_(call_id) {}

Responder::Responder(Responder&& other) noexcept
    : channel_(std::move(other.channel_)), call_id_(std::exchange(other.call_id_, 0)) {}

Responder& Responder::operator=(Responder&& other) noexcept {
  if (this != &other) {
    if (*this) (*this)(failed(Code::kInternal, "rpc.dropped"));
    channel_ = std::move(other.channel_);
    call_id_ = std::exchange(other.call_id_, 0);
  }
  return *this;
}

Responder::~Responder() {
  if (*this) (*this)(failed(Code::kInternal, "rpc.dropped"));
}

void Responder::operator()(Answer answer) {
  STDCHK_ASSERT(call_id_ != 0);  // a request is answered once
  const std::uint64_t call_id = std::exchange(call_id_, 0);
  if (const auto channel = channel_.lock()) channel->respond(call_id, std::move(answer));
}

// ---- Peer: life

Peer::Peer(Reactor& reactor, PeerHandler& handler)
    : reactor_(reactor), handler_(handler), channel_(std::make_shared<Responder::Channel>(*this)) {}

Peer::Peer(Reactor& reactor, std::unique_ptr<transport::Link> link, PeerHandler& handler)
    : Peer(reactor, handler) {
  link_ = std::move(link);
  link_->set_handler(*this);
}

Result<std::unique_ptr<Peer>> Peer::connect(Reactor& reactor, transport::Endpoint& endpoint,
                                            std::string_view address, PeerHandler& handler,
                                            Duration deadline,
                                            const transport::secure::Ticket* ticket) {
  std::unique_ptr<Peer> peer(new Peer(reactor, handler));
  STDCHK_ASSIGN(peer->link_, endpoint.connect(address, *peer, deadline, ticket));
  return peer;
}

Peer::~Peer() {
  closed_ = true;
  channel_->close();
  reactor_.cancel(flush_timer_);
  reactor_.cancel(close_timer_);
  link_.reset();
  for (auto& [call_id, call] : calls_) reactor_.cancel(call.timer);
}

void Peer::close(Error why) {
  if (closed_) return;
  closed_ = true;
  queue_.clear();
  queue_bytes_ = 0;
  reactor_.cancel(flush_timer_);
  reactor_.cancel(close_timer_);
  const auto channel = channel_;
  // Take the calls out first: their callbacks may make new calls, or destroy this Peer.
  auto calls = std::exchange(calls_, {});
  for (auto& [call_id, call] : calls) reactor_.cancel(call.timer);
  for (auto& [call_id, call] : calls) {
    // The name of the call replaces the text of the error. A refusal says what to do, so keep its
    // text as detail.
    std::string detail = why.code == Code::kRefused ? describe(why) : std::string();
    call.done(tl::unexpected<Failure>(
        Failure{{why.code, why.os_errno, call.name}, std::move(detail), {}}));
  }
  if (!channel->open()) return;
  handler_.on_closed(*this, why);
}

void Peer::close_later(Error why) {
  if (closed_ || close_timer_) return;
  close_timer_ = reactor_.schedule_after(Duration::zero(), [this, why] { close(why); });
}

// ---- Peer: sending

void Peer::call(msg::Request request, Duration deadline, Callback done) {
  call_as(next_call_id(), std::move(request), deadline, std::move(done));
}

void Peer::call_as(std::uint64_t call_id, msg::Request request, Duration deadline, Callback done) {
  Call call{std::move(done), {}, request.index(), ""};
  std::visit([&](const auto& body) { call.name = body.kName; }, request);
  const bool is_new = calls_.emplace(call_id, std::move(call)).second;
  STDCHK_ASSERT(is_new && call_id != 0);
  finish_later(call_id, Code::kDeadline, deadline);
  const Status sent =
      send(msg::RequestEnvelope{call_id, to_ms(deadline), sender_, std::move(request)});
  if (!sent.has_value()) finish_later(call_id, sent.error().code, Duration::zero());
}

Status Peer::notify(const msg::Notice& notice) { return send(msg::NoticeEnvelope{notice}); }

void Peer::respond(std::uint64_t call_id, Answer answer) {
  msg::ReplyEnvelope reply{call_id, Code{}, 0, 0, {}, {}};
  if (answer.has_value()) {
    reply.body = std::move(*answer);
  } else {
    const Failure& failure = answer.error();
    reply.code = failure.error.code;
    reply.os_errno = failure.error.os_errno;
    reply.retry_after_ms = to_ms(failure.retry_after);
    reply.detail = failure.detail.substr(0, limits::kPathBytesMax);
  }
  Status sent = send(reply);
  if (sent.has_value() || closed_) return;
  if (sent.error().code == Code::kTooLarge || sent.error().code == Code::kInvalidArgument) {
    sent = send(msg::ReplyEnvelope{call_id, sent.error().code, 0, 0, {}, {}});
  }
  // A reply is never dropped silently: a peer that does not take its replies is closed.
  if (!sent.has_value()) close_later(sent.error());
}

/// Sends a message after those in the queue. kBusy: the queue is full.
Status Peer::send(const msg::Envelope& envelope) {
  if (closed_) return fail(Code::kPeerLost, kWhere);
  STDCHK_TRY(msg::encode(envelope, buffer_));
  if (queue_.empty() && connected()) {
    const Status sent = link_->send(buffer_);
    if (sent.has_value() || sent.error().code != Code::kWouldBlock) return sent;
    flush_timer_ = reactor_.schedule_after(limits::kCongestionRetry, [this] { flush(); });
  }
  if (queue_bytes_ + buffer_.size() > limits::kPeerQueueBytesMax) return fail(Code::kBusy, kWhere);
  queue_bytes_ += buffer_.size();
  queue_.emplace_back(buffer_.begin(), buffer_.end());
  return {};
}

/// Sends from the queue until the link takes no more.
void Peer::flush() {
  reactor_.cancel(std::exchange(flush_timer_, {}));
  while (!closed_ && !queue_.empty() && connected()) {
    const Status sent = link_->send(queue_.front());
    if (!sent.has_value()) {
      if (sent.error().code != Code::kWouldBlock) return close_later(sent.error());
      flush_timer_ = reactor_.schedule_after(limits::kCongestionRetry, [this] { flush(); });
      return;
    }
    queue_bytes_ -= queue_.front().size();
    queue_.pop_front();
  }
}

// ---- Peer: answers

/// Ends the call with `code` after `delay`; replaces the call's timer.
void Peer::finish_later(std::uint64_t call_id, Code code, Duration delay) {
  Call& call = calls_.at(call_id);
  reactor_.cancel(call.timer);
  call.timer = reactor_.schedule_after(
      delay, [this, call_id, code, name = call.name] { finish(call_id, failed(code, name)); });
}

/// Answers the call. Its callback may destroy this Peer.
void Peer::finish(std::uint64_t call_id, Answer answer) {
  auto found = calls_.extract(call_id);
  STDCHK_ASSERT(!found.empty());
  reactor_.cancel(found.mapped().timer);
  found.mapped().done(std::move(answer));
}

void Peer::on_reply(msg::ReplyEnvelope reply) {
  const auto found = calls_.find(reply.call_id);
  if (found == calls_.end()) return;  // the reply came after the call's deadline
  const Call& call = found->second;
  if (reply.code != Code{}) {
    const std::chrono::milliseconds retry_after(reply.retry_after_ms);
    finish(reply.call_id,
           tl::unexpected<Failure>(Failure{
               {reply.code, reply.os_errno, call.name}, std::move(reply.detail), retry_after}));
  } else if (reply.body.index() != call.kind) {
    finish(reply.call_id, failed(Code::kMalformed, call.name));
  } else {
    finish(reply.call_id, std::move(reply.body));
  }
}

void Peer::on_request(msg::RequestEnvelope request) {
  const Time deadline = reactor_.clock().now() + std::chrono::milliseconds(request.deadline_ms);
  const std::uint64_t call_id = request.call_id;
  if (call_id == 0) return close({Code::kMalformed, 0, kWhere});
  handler_.on_request(*this, std::move(request), deadline, Responder(channel_, call_id));
}

// ---- Peer: events of the link

void Peer::on_connected(transport::Link&) {
  flush();
  if (!closed_) handler_.on_connected(*this);
}

void Peer::on_message(transport::Link&, ByteSpan message) {
  if (closed_) return;
  Result<msg::Envelope> envelope = msg::decode(message);
  if (!envelope.has_value()) return close(envelope.error());
  if (auto* reply = std::get_if<msg::ReplyEnvelope>(&*envelope)) {
    on_reply(std::move(*reply));
  } else if (auto* request = std::get_if<msg::RequestEnvelope>(&*envelope)) {
    on_request(std::move(*request));
  } else {
    handler_.on_notice(*this, std::get<msg::NoticeEnvelope>(std::move(*envelope)).body);
  }
}

void Peer::on_closed(transport::Link&, Error why) { close(why); }

}  // namespace stdchk::rpc
