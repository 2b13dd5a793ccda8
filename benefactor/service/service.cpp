#include "benefactor/service/service.h"

#include <algorithm>
#include <utility>

#include "benefactor/drain/file_drainer.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/secure/grant_proof.h"

namespace stdchk::benefactor {
namespace {

using std::chrono::milliseconds;

constexpr Duration kBackOffMax = milliseconds(2000);
constexpr Duration kSweepInterval = milliseconds(100);

tl::unexpected<rpc::Failure> refuse(Code code, const char* where, std::string detail,
                                    Duration retry_after = {}) {
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{code, 0, where}, std::move(detail), retry_after});
}

}  // namespace

Service::Service(Reactor& reactor, Config config, Arena& arena, transport::Endpoint& control,
                 std::vector<transport::Endpoint*> data)
    : reactor_(reactor),
      config_(std::move(config)),
      arena_(arena),
      control_(control),
      managers_(config_.manager_address, kBackOffMax),
      log_(LogRoom{config_.log_bytes, config_.log_bytes_max, config_.log_may_grow}),
      stop_(config_.pause),
      forgetter_(arena.bytes()) {
  for (transport::Endpoint* endpoint : data) {
    listeners_.push_back(std::make_unique<Listener>(*this, *endpoint));
  }
  if (!config_.make_drainer) {
    config_.make_drainer = [this](const std::string& directory, std::uint64_t rate) {
      return std::make_unique<FileDrainer>(arena_.bytes(), directory, rate, reactor_.clock(),
                                           stop_);
    };
  }
}

std::vector<std::string> Service::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& listener : listeners_) addresses.push_back(listener->endpoint.address());
  return addresses;
}

std::map<std::string, std::size_t> Service::links_by_transport() const {
  const auto name = [](const Listener& listener) {
    return std::string(listener.endpoint.capabilities().name);
  };
  std::map<std::string, std::size_t> out;
  for (const auto& listener : listeners_) out[name(*listener)] = 0;
  for (const ClientLink& link : links_) ++out[name(*link.listener)];
  return out;
}

Status Service::start() {
  Error last{Code::kInvalidArgument, 0, "benefactor.start"};
  std::erase_if(listeners_, [&](std::unique_ptr<Listener>& listener) {
    auto region = listener->endpoint.register_memory(arena_.bytes());
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
  SourceAccess access{config_.host_token, {}};
  for (const auto& listener : listeners_) {
    access.ways.push_back({&listener->endpoint, listener->region.get()});
  }
  copier_ = std::make_unique<Copier>(
      reactor_, Copier::Config{access, arena_.bytes(), config_.executor, counts_});
  builder_ = std::make_unique<StripeBuilder>(
      reactor_,
      StripeBuilder::Config{std::move(access), arena_.bytes(), config_.executor, counts_});
  connect_manager();
  return {};
}

// ---- registration -----------------------------------------------------------------------------

void Service::connect_manager() {
  manager_timer_ = {};
  auto peer =
      rpc::Peer::connect(reactor_, control_, managers_.current(), *this, limits::kConnectDeadline);
  if (!peer) return lose_manager(peer.error());
  manager_ = std::move(*peer);
  register_now();
}

void Service::register_now() {
  msg::RegisterBenefactor request;
  request.life_high = config_.life.high;
  request.life_low = config_.life.low;
  request.addresses = addresses();
  request.host_token = config_.host_token;
  request.host_name = config_.host_name;
  request.arena_bytes = arena_.bytes().size();
  request.pid = config_.pid;
  request.newest_epoch = epoch_;
  request.log_bytes_max = log_.bytes_max();
  request.log_epoch = log_.epoch();
  request.log_sequence = log_.sequence();
  request.newest_sequence = newest_sequence_;
  request.benefactor = id_;
  request.proof = proof_;
  manager_->call(std::move(request), limits::kCallDeadline,
                 [this](rpc::Answer answer) { on_register_answer(std::move(answer)); });
}

void Service::on_register_answer(rpc::Answer answer) {
  if (!answer) {
    // A link that has gone is reported by on_closed as well; only that path starts anew.
    if (answer.error().error.code == Code::kPeerLost || !manager_) return;
    const Error why = answer.error().error;
    if (why.code == Code::kRefused && config_.on_refused) {
      config_.on_refused(answer.error().detail.empty() ? describe(why) : answer.error().detail);
    }
    return lose_manager(why);
  }
  const auto* reply = std::get_if<msg::RegisterBenefactor::Reply>(&*answer);
  if (reply == nullptr || !reply->benefactor || !reply->epoch) {
    return lose_manager(Error{Code::kMalformed, 0, "benefactor.register"});
  }
  if (reply->epoch < epoch_) {
    log::error(
        "the manager at {} is refused: its epoch is {}, and a manager with epoch {} has taken over",
        managers_.current(), reply->epoch.value, epoch_.value);
    return lose_manager(Error{Code::kFenced, 0, "benefactor.register"});
  }
  if (epoch_ && epoch_ != reply->epoch) new_epoch();
  fence_.fence_below(reply->first_client);
  if (epoch_ != reply->epoch) {
    newest_sequence_ = 0;
    proof_ = reply->proof;
    // Tickets of the previous epoch may still arrive; their clients learn that they are fenced.
    if (config_.keyring && first_client_) config_.keyring->refuse_before(first_client_.value);
    first_client_ = reply->first_client;
  }
  epoch_ = reply->epoch;
  id_ = reply->benefactor;
  manager_->set_sender(id_.value);
  if (drain_directory_ != reply->config.drain_directory ||
      drain_rate_ != reply->config.drain_rate_bytes_per_s) {
    drain_directory_ = reply->config.drain_directory;
    drain_rate_ = reply->config.drain_rate_bytes_per_s;
    drainer_ =
        drain_directory_.empty() ? nullptr : config_.make_drainer(drain_directory_, drain_rate_);
  }
  registered_ = true;
  managers_.answered();
  log::info("registered with {} as benefactor {} in epoch {}", managers_.current(), id_.value,
            epoch_.value);
  if (config_.on_registered) config_.on_registered(*reply);
  send_heartbeat();
}

void Service::new_epoch() {
  log::info("the manager was restarted; {} clients must attach anew", attached_count());
  for (const ClientLink& link : links_) {
    if (link.client) fence_.fence(link.client);
  }
  fence_links([](const ClientLink&) { return true; });
}

void Service::send_heartbeat() {
  manager_timer_ = {};
  if (!manager_ || !registered_) return;
  manager_->call(msg::BenefactorHeartbeat{id_, on_may_go_ != nullptr}, limits::kLease,
                 [this](const rpc::Answer& answer) { on_heartbeat(answer); });
  manager_timer_ =
      reactor_.schedule_after(limits::kHeartbeatInterval, [this] { send_heartbeat(); });
}

void Service::on_heartbeat(const rpc::Answer& answer) {
  if (answer) {
    const auto* reply = std::get_if<msg::BenefactorHeartbeat::Reply>(&*answer);
    if (reply == nullptr) return;
    if (reply->log_sequence >= newest_sequence_) {
      newest_sequence_ = reply->log_sequence;
      proof_ = reply->proof;
    }
    if (reply->may_go && on_may_go_) on_may_go_(true);
    return;
  }
  if (!manager_ || answer.error().error.code == Code::kPeerLost) return;
  // The manager forgot this benefactor, or does not answer: registers again with the same life.
  lose_manager(answer.error().error);
}

void Service::leave(std::function<void(bool done)> may_go) {
  on_may_go_ = std::move(may_go);
  if (!registered_) return on_may_go_(false);
  reactor_.cancel(manager_timer_);
  send_heartbeat();
}

void Service::lose_manager(Error why) {
  // A manager that comes gives the space away: nothing of what an earlier one asked for may come
  // later than the registration.
  forgetter_.lose_link();
  if (copier_) copier_->cancel();
  if (builder_) builder_->cancel();
  if (on_may_go_) return on_may_go_(false);
  // Logs each loss once, not each attempt.
  if (registered_ || !managers_.failing()) {
    log::warning("the manager at {} is not there, trying again: {}", managers_.current(),
                 describe(why));
  }
  const bool had_one = std::exchange(registered_, false);
  reactor_.cancel(manager_timer_);
  // The peer's callback may have called this function, so the reactor destroys the peer later.
  if (manager_) {
    std::shared_ptr<rpc::Peer> old = std::move(manager_);
    reactor_.schedule_after(Duration{}, [old] {});
  }
  // After the loss of a link only, returns to the same manager: a standby counts each arrival as
  // lost to the manager.
  manager_timer_ = reactor_.schedule_after(had_one ? managers_.again() : managers_.next(),
                                           [this] { connect_manager(); });
}

// ---- clients ----------------------------------------------------------------------------------

void Service::Listener::on_accept(std::unique_ptr<transport::Link> link) {
  service.accept(*this, std::move(link));
}

void Service::accept(Listener& listener, std::unique_ptr<transport::Link> link) {
  if (!config_.believes_links && link->peer() == nullptr) {
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

std::size_t Service::attached_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      links_, [](const ClientLink& link) { return static_cast<bool>(link.client); }));
}

bool Service::is_attached(ClientId client) const {
  const auto is = [&](const ClientLink& link) { return link.client == client; };
  return std::ranges::any_of(links_, is) || std::ranges::any_of(unfenced_, is);
}

std::vector<Service::ClientLink>::iterator Service::link_of(const rpc::Peer& peer) {
  return std::ranges::find_if(links_,
                              [&](const ClientLink& link) { return link.peer.get() == &peer; });
}

void Service::on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                         rpc::Responder respond) {
  if (&peer == manager_.get()) {
    if (!has_proven(peer)) {
      return respond(refuse(Code::kRefused, "benefactor.request", "No manager has proven itself."));
    }
    return serve_manager(std::move(request.body), deadline, std::move(respond));
  }
  const auto* wanted = std::get_if<msg::Attach>(&request.body);
  if (wanted == nullptr) {
    return respond(refuse(Code::kRefused, "benefactor.request",
                          "A benefactor answers clients only that they may attach."));
  }
  respond(attach(peer, *wanted));
}

/// A link to the manager counts as up after the peer has proven its role.
bool Service::has_proven(const rpc::Peer& peer) const {
  const auto* const member = peer.link().peer();
  return config_.believes_links ||
         (member != nullptr && member->member.role == transport::secure::Role::kManager);
}

rpc::Answer Service::attach(rpc::Peer& peer, const msg::Attach& request) {
  constexpr const char* kWhere = "benefactor.attach";
  const auto link = link_of(peer);
  if (link == links_.end()) return refuse(Code::kRefused, kWhere, "The link has gone.");
  const auto* const member = peer.link().peer();
  if (!config_.believes_links && (member == nullptr || member->number != request.client.value)) {
    return refuse(Code::kRefused, kWhere, "The ticket is for another client number.");
  }
  if (!id_ || !registered_) {
    return refuse(Code::kBusy, kWhere, "The benefactor is not registered with its manager.",
                  kBackOffMax / 4);
  }
  if (request.benefactor != id_) {
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
transport::RemoteKey Service::share(ClientLink& link) {
  transport::Link& to = link.peer->link();
  const transport::MemoryRegion& region = *link.listener->region;
  // A benefactor that copies from here only reads.
  const auto* const member = to.peer();
  if (member != nullptr && member->member.role == transport::secure::Role::kBenefactor) {
    return to.share_for_reading(region);
  }
  if (link.check == nullptr) {
    link.check = std::make_shared<ClientWriteCheck>(grants_, grant_key(), id_, link.client);
  }
  return to.share_checked(region, link.check);
}

/// Without a keyring this benefactor trusts links and grants without a proof.
Secret Service::grant_key() const {
  if (config_.keyring == nullptr) return {};
  return config_.keyring->own(transport::secure::kGrantKeyUse, {});
}

rpc::Answer Service::fence_client(const msg::FenceClient& request) {
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

void Service::fence_links(const std::function<bool(const ClientLink&)>& meant) {
  // Taken out first: closing a link may call on_closed.
  const auto stays = [&](const ClientLink& link) { return !link.client || !meant(link); };
  const auto fenced = std::stable_partition(links_.begin(), links_.end(), stays);
  std::vector<ClientLink> taken(std::make_move_iterator(fenced),
                                std::make_move_iterator(links_.end()));
  links_.erase(fenced, links_.end());
  for (ClientLink& link : taken) fence_link(std::move(link));
}

/// Closes a link that is in links_ no more, and keeps it until its peer cannot write.
void Service::fence_link(ClientLink link) {
  if (!link.client || link.peer->link().fence()) return;
  unfenced_.push_back(std::move(link));
  schedule_sweep();
}

void Service::on_closed(rpc::Peer& peer, Error why) {
  if (&peer == manager_.get()) return lose_manager(why);
  const auto found = link_of(peer);
  if (found == links_.end()) return;
  ClientLink link = std::move(*found);
  links_.erase(found);
  fence_link(std::move(link));
}

void Service::schedule_sweep() {
  if (!sweep_timer_) {
    sweep_timer_ = reactor_.schedule_after(kSweepInterval, [this] { sweep(); });
  }
}

/// Asks unfenced links again, and closes links that did not attach in time.
void Service::sweep() {
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
