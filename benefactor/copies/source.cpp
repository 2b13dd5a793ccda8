#include "benefactor/copies/source.h"

#include "core/base/limits.h"
#include "transport/secure/ticket.h"

namespace stdchk::benefactor {

Source::Source(Reactor& reactor, const SourceAccess& access, ClientId client,
               msg::BenefactorInfo info, Linked linked)
    : reactor_(reactor),
      access_(access),
      client_(client),
      info_(std::move(info)),
      linked_(std::move(linked)) {
  for (const SourceAccess::Way& way : access_.ways) {
    const auto& able = way.endpoint->capabilities();
    if (able.same_host_only && info_.host_token != access_.host_token) continue;
    for (const std::string& address : info_.addresses) {
      if (!transport::reaches(*way.endpoint, address)) continue;
      tries_.emplace(able.same_host_only ? tries_.begin() : tries_.end(), way, address);
    }
  }
}

void Source::attach() {
  next_ = 0;
  connect_next();
}

Status Source::read(std::uint64_t from, MutableByteSpan to, transport::Operation& operation) {
  const transport::LocalPiece piece{to.data(), to.size(), way_.region};
  return peer_->link().read({&piece, 1}, key_, from, operation);
}

void Source::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) {
  respond(tl::unexpected<rpc::Failure>(rpc::Failure{
      Error{Code::kUnsupported, 0, "benefactor.source"}, "A reader serves nothing.", Duration{}}));
}

void Source::on_closed(rpc::Peer&, Error) {
  const bool was_ready = std::exchange(ready_, false);
  if (!was_ready) next_soon();
}

void Source::next_soon() {
  // The peer's own callback may have called this function.
  reactor_.schedule_after(Duration::zero(), [this, alive = lifetime_.watch(), at = next_] {
    if (!alive.expired() && !ready_ && at == next_) connect_next();
  });
}

void Source::connect_next() {
  peer_.reset();
  while (next_ < tries_.size()) {
    way_ = tries_[next_].first;
    const auto ticket = transport::secure::ticket_of(info_);
    auto peer = rpc::Peer::connect(reactor_, *way_.endpoint, tries_[next_].second, *this,
                                   limits::kConnectDeadline, ticket ? &*ticket : nullptr);
    ++next_;
    if (!peer) continue;
    peer_ = std::move(*peer);
    peer_->set_sender(client_.value);
    peer_->call(msg::Attach{client_, info_.id}, limits::kConnectDeadline,
                [this](const rpc::Answer& answer) { attached(answer); });
    return;
  }
  linked_(*this, false);
}

void Source::attached(const rpc::Answer& answer) {
  const auto* reply = answer ? std::get_if<msg::Attach::Reply>(&*answer) : nullptr;
  if (reply == nullptr) return next_soon();
  key_ = {reply->key, reply->base, reply->length};
  ready_ = true;
  linked_(*this, true);
}

Source& Sources::of(ClientId client, const msg::BenefactorInfo& info) {
  auto& source = sources_[info.id];
  if (source == nullptr || !source->is_for(client, info)) {
    source = std::make_unique<Source>(reactor_, access_, client, info, linked_);
  }
  return *source;
}

}  // namespace stdchk::benefactor
