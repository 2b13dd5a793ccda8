#include <algorithm>
#include <utility>

#include "transport/sealed/sealed.h"

namespace stdchk::transport::secure {

SecureLink::SecureLink(SecureEndpoint& endpoint, Handshake handshake, bool accepted, Time late_at)
    : endpoint_(endpoint),
      accepted_(accepted),
      late_at_(late_at),
      handshake_(std::move(handshake)) {}

SecureLink::~SecureLink() {
  state_ = State::kClosed;
  close_reported_ = true;
  std::erase(endpoint_.connecting_, this);
  std::erase(endpoint_.ending_, this);
  inner_.reset();
}

Status SecureLink::send(ByteSpan message) {
  constexpr const char* kWhere = "secure.send";
  if (message.size() > endpoint_.capabilities_.message_bytes_max) {
    return fail(Code::kTooLarge, kWhere);
  }
  if (!connected()) return fail(Code::kPeerLost, kWhere);
  auto& sealed = endpoint_.sealed_;
  sealed.resize(message.size() + Sealer::kTagBytes);
  const auto tag = out_.seal(sent_, message, MutableByteSpan(sealed).first(message.size()));
  std::ranges::copy(tag, sealed.begin() + static_cast<std::ptrdiff_t>(message.size()));
  // The transport refused the message, so no peer has seen its number: the number may be reused.
  STDCHK_TRY(inner_->send(sealed));
  ++sent_;
  return {};
}

Status SecureLink::write(std::span<const LocalPiece> pieces, const RemoteKey& to,
                         std::uint64_t offset, Operation& operation) {
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "secure.write");
  return inner_->write(pieces, to, offset, operation);
}

Status SecureLink::read(std::span<const LocalPiece> pieces, const RemoteKey& from,
                        std::uint64_t offset, Operation& operation) {
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "secure.read");
  return inner_->read(pieces, from, offset, operation);
}

// ---- what the inner link tells

void SecureLink::on_connected(Link&) {
  if (const Status sent = inner_->send(handshake_.hello()); !sent) end_soon(sent.error());
}

void SecureLink::on_message(Link&, ByteSpan message) {
  if (state_ == State::kGreeting) return greet(message);
  if (state_ != State::kOpen) return;
  if (message.size() < Sealer::kTagBytes) return end_soon({Code::kCorrupt, 0, "secure.message"});
  const ByteSpan sealed = message.first(message.size() - Sealer::kTagBytes);
  auto& opened = endpoint_.opened_;
  opened.resize(sealed.size());
  if (const Status good = in_.open(received_, sealed, message.last(Sealer::kTagBytes), opened);
      !good) {
    return end_soon({Code::kCorrupt, 0, "secure.message"});
  }
  ++received_;
  handler_->on_message(*this, opened);
}

void SecureLink::on_closed(Link&, Error why) {
  if (close_reported_) return;
  if (accepted_ && state_ == State::kGreeting) return endpoint_.refuse(*this, why);
  if (reason_) why = *reason_;  // this end closed the link and knows the reason
  state_ = State::kClosed;
  close_reported_ = true;
  std::erase(endpoint_.connecting_, this);
  std::erase(endpoint_.ending_, this);
  handler_->on_closed(*this, why);
}

// ---- handshake

void SecureLink::greet(ByteSpan message) {
  if (reason_) return endpoint_.refuse(*this, *reason_);  // a refused peer sends on
  const Handshake::Step step = handshake_.take(message);
  Status status = step.status;
  if (!step.reply.empty()) {
    const Status sent = inner_->send(step.reply);
    if (!sent) status = sent;
  }
  if (!status.has_value()) {
    // A refused peer ends the link after it has read the refusal; otherwise the deadline ends the
    // link.
    if (!accepted_) return end_soon(status.error());
    if (step.reply.empty()) return endpoint_.refuse(*this, status.error());
    reason_ = status.error();
    return;
  }
  if (!step.done) return;
  const LinkKeys keys = handshake_.keys();
  out_.set_key(keys.outgoing);
  in_.set_key(keys.incoming);
  state_ = State::kOpen;
  inner_->grant_access();
  endpoint_.hand_over(*this);
}

/// From a later poll(): this may be a callback of the inner link, whose operations are to be
/// finished first.
void SecureLink::end_soon(const Error& why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  reason_ = why;
  std::erase(endpoint_.connecting_, this);
  endpoint_.ending_.push_back(this);
}

void SecureLink::end_now() {
  if (accepted_) {
    // The inner link stays, because its owner may have to wait until the peer can no longer write.
    const bool tells = endpoint_.capabilities_.fence == FenceKind::kImmediate;
    inner_->fence();
    if (tells) return;  // on_closed follows when its operations are finished
  } else {
    const Lifetime::Watch alive = lifetime_.watch();
    std::exchange(inner_, nullptr).reset();  // a completion handler may destroy this link
    if (alive.expired()) return;
  }
  if (close_reported_) return;
  close_reported_ = true;
  handler_->on_closed(*this, *reason_);
}

}  // namespace stdchk::transport::secure
