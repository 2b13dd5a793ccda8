#include "benefactor/service/client_links.h"

#include <algorithm>
#include <utility>

#include "benefactor/service/refuse.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/secure/grant_proof.h"

namespace stdchk::benefactor {
namespace {

using std::chrono::milliseconds;

constexpr Duration kSweepInterval = milliseconds(100);
constexpr Duration kAttachAgain = milliseconds(500);

}  // namespace

ClientLinks::ClientLinks(Reactor& reactor, const Config& config, const Membership& membership,
                         MutableByteSpan arena, const std::vector<transport::Endpoint*>& endpoints)
    : reactor_(reactor), config_(config), membership_(membership), arena_(arena) {
  for (transport::Endpoint* endpoint : endpoints) {
    listeners_.push_back(std::make_unique<Listener>(*this, *endpoint));
  }
}

ClientLinks::~ClientLinks() { reactor_.cancel(sweep_timer_); }

std::vector<std::string> ClientLinks::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& listener : listeners_) addresses.push_back(listener->endpoint.address());
  return addresses;
}

std::map<std::string, std::size_t> ClientLinks::count_by_transport() const {
  const auto name = [](const Listener& listener) {
    return std::string(listener.endpoint.capabilities().name);
  };
  std::map<std::string, std::size_t> out;
  for (const auto& listener : listeners_) out[name(*listener)] = 0;
  for (const ClientLink& link : links_) ++out[name(*link.listener)];
  return out;
}

Status ClientLinks::start() {
  Error last{Code::kInvalidArgument, 0, "benefactor.start"};
  std::erase_if(listeners_, [&](std::unique_ptr<Listener>& listener) {
    auto region = listener->endpoint.register_memory(arena_);
    Status listening;
    if (region) {
      listener->region = std::move(*region);
      listening = listener->endpoint.listen(*listener);
    }
    if (region && listening) return false;
    last = region ? listening.error() : region.error();
    log::warning("transport {} is left out: {}", listener->endpoint.capabilities().name,
                 describe(last));
    return true;
  });
  if (listeners_.empty()) return fail(last);
  return {};
}

SourceAccess ClientLinks::access() const {
  SourceAccess access{config_.host_token, {}};
  for (const auto& listener : listeners_) {
    access.ways.push_back({&listener->endpoint, listener->region.get()});
  }
  return access;
}

void ClientLinks::fence_all() {
  log::info("the manager was restarted; {} clients must attach anew", attached_count());
  for (const ClientLink& link : links_) {
    if (link.client) fence_.fence(link.client);
  }
  fence_links([](const ClientLink&) { return true; });
}

void ClientLinks::Listener::on_accept(std::unique_ptr<transport::Link> link) {
  owner.accept(*this, std::move(link));
}

void ClientLinks::accept(Listener& listener, std::unique_ptr<transport::Link> link) {
  if (!config_.trusts_unproven_links && link->peer() == nullptr) {
    return log::warning("a link was closed: nobody has proven itself at its other end");
  }
  if (links_.size() >= kLinksMax) {
    log::warning("a link was closed: {} links are open already", links_.size());
    return;
  }
  ClientLink accepted;
  accepted.peer = std::make_unique<rpc::Peer>(reactor_, std::move(link), *this);
  accepted.listener = &listener;
  accepted.accepted = reactor_.clock().now();
  links_.push_back(std::move(accepted));
  schedule_sweep();
}

std::size_t ClientLinks::attached_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      links_, [](const ClientLink& link) { return static_cast<bool>(link.client); }));
}

bool ClientLinks::is_attached(ClientId client) const {
  const auto is = [&](const ClientLink& link) { return link.client == client; };
  return std::ranges::any_of(links_, is) || std::ranges::any_of(unfenced_, is);
}

std::vector<ClientLinks::ClientLink>::iterator ClientLinks::link_of(const rpc::Peer& peer) {
  return std::ranges::find_if(links_,
                              [&](const ClientLink& link) { return link.peer.get() == &peer; });
}

void ClientLinks::on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time /*deadline*/,
                             rpc::Responder respond) {
  const auto* wanted = std::get_if<msg::Attach>(&request.body);
  if (wanted == nullptr) {
    return respond(refuse(Code::kRefused, "benefactor.request",
                          "A benefactor answers clients only that they may attach."));
  }
  respond(attach(peer, *wanted));
}

rpc::Answer ClientLinks::attach(rpc::Peer& peer, const msg::Attach& request) {
  constexpr const char* kWhere = "benefactor.attach";
  const auto link = link_of(peer);
  if (link == links_.end()) return refuse(Code::kRefused, kWhere, "The link has gone.");
  const auto* const member = peer.link().peer();
  if (!config_.trusts_unproven_links &&
      (member == nullptr || member->number != request.client.value)) {
    return refuse(Code::kRefused, kWhere, "The ticket is for another client number.");
  }
  if (!membership_.id || !membership_.registered) {
    return refuse(Code::kBusy, kWhere, "The benefactor is not registered with its manager.",
                  kAttachAgain);
  }
  if (request.benefactor != membership_.id) {
    return refuse(Code::kStale, kWhere, "Another benefactor lives at this address now.");
  }
  if (!fence_.admits(request.client)) {
    return refuse(Code::kFenced, kWhere, "The client was fenced; it must register anew.");
  }
  if (link->client && link->client != request.client) {
    return refuse(Code::kRefused, kWhere, "Another client is attached through this link.");
  }
  link->client = request.client;
  const transport::RemoteKey key = share(*link);
  return msg::Reply(msg::Attach::Reply{key.key, key.base, key.length});
}

/// Shares the arena with the client of the link.
transport::RemoteKey ClientLinks::share(ClientLink& link) {
  transport::Link& to = link.peer->link();
  const transport::MemoryRegion& region = *link.listener->region;
  // A benefactor that copies from here only reads.
  const auto* const member = to.peer();
  if (member != nullptr && member->member.role == transport::secure::Role::kBenefactor) {
    return to.share_for_reading(region);
  }
  if (link.check == nullptr) {
    link.check =
        std::make_shared<ClientWriteCheck>(grants_, grant_key(), membership_.id, link.client);
  }
  return to.share_checked(region, link.check);
}

/// Without a keyring this benefactor trusts links and grants without a proof.
Secret ClientLinks::grant_key() const {
  if (config_.keyring == nullptr) return {};
  return config_.keyring->own(transport::secure::kGrantKeyUse, {});
}

rpc::Answer ClientLinks::fence_client(const msg::FenceClient& request) {
  if (!request.client) {
    return refuse(Code::kInvalidArgument, "benefactor.fence", "No client is named.");
  }
  if (request.and_older) {
    fence_.fence_below(ClientId{request.client.value + 1});
  } else {
    fence_.fence(request.client);
  }
  const auto meant = [&](const ClientLink& link) {
    return link.client == request.client ||
           (request.and_older && link.client && link.client < request.client);
  };
  fence_links(meant);
  std::erase_if(unfenced_,
                [&](ClientLink& link) { return meant(link) && link.peer->link().fence(); });
  return msg::Reply(msg::FenceClient::Reply{std::ranges::none_of(unfenced_, meant)});
}

void ClientLinks::fence_links(const std::function<bool(const ClientLink&)>& meant) {
  // Taken out first: closing a link may call on_closed.
  const auto stays = [&](const ClientLink& link) { return !link.client || !meant(link); };
  const auto fenced = std::stable_partition(links_.begin(), links_.end(), stays);
  std::vector<ClientLink> taken(std::make_move_iterator(fenced),
                                std::make_move_iterator(links_.end()));
  links_.erase(fenced, links_.end());
  for (ClientLink& link : taken) fence_link(std::move(link));
}

/// Closes a link that is in links_ no more, and keeps it until its peer cannot write.
void ClientLinks::fence_link(ClientLink link) {
  if (!link.client || link.peer->link().fence()) return;
  unfenced_.push_back(std::move(link));
  schedule_sweep();
}

void ClientLinks::on_closed(rpc::Peer& peer, Error /*why*/) {
  const auto found = link_of(peer);
  if (found == links_.end()) return;
  ClientLink link = std::move(*found);
  links_.erase(found);
  fence_link(std::move(link));
}

void ClientLinks::schedule_sweep() {
  if (!sweep_timer_) {
    sweep_timer_ = reactor_.schedule_after(kSweepInterval, [this] { sweep(); });
  }
}

/// Asks unfenced links again, and closes links that did not attach in time.
void ClientLinks::sweep() {
  sweep_timer_ = {};
  std::erase_if(unfenced_, [](ClientLink& link) { return link.peer->link().fence(); });
  const Time oldest = reactor_.clock().now() - limits::kCallDeadline;
  std::erase_if(links_,
                [&](const ClientLink& link) { return !link.client && link.accepted < oldest; });
  const bool waiting =
      std::ranges::any_of(links_, [](const ClientLink& link) { return !link.client; });
  if (waiting || !unfenced_.empty()) schedule_sweep();
}

}  // namespace stdchk::benefactor
