// Who is in the pool: registration, leases, fences, and telling clients of changes.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/pool/sets.h"
#include "manager/recovery/log_keepers.h"
#include "manager/replication/copy_planner.h"
#include "manager/service/service.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kFenceRetry = 1s;
constexpr Duration kGoneAfter = 2 * limits::kLease;
constexpr std::ptrdiff_t kBenefactorsMax = 500;  // as many as a message surely holds

}  // namespace

// ---- registration -----------------------------------------------------------------------------

void Service::register_client(Connection& connection, msg::RegisterClient request,
                              const Call& call) {
  if (connection.benefactor) return call.fail(Code::kInvalidArgument, "register client");
  if (!config_.membership.examine(request, connection.member())) {
    log::warning("a client on {} does not prove that it was client {}", request.host_name,
                 request.resume.value);
  }
  const std::uint64_t last_given = (state_.epoch().value << 40) | last_id_;
  if (outdated({request.newest_epoch, 0, request.resume.value <= last_given}, call)) return;
  auto resumed = clients_.find(request.resume);
  // Who asks twice on one link is one client.
  if (resumed == clients_.end()) resumed = clients_.find(connection.client);
  if (resumed == clients_.end()) {
    ClientRecord record;
    record.id = ClientId{next_id()};
    resumed = clients_.emplace(record.id, std::move(record)).first;
  }
  ClientRecord& client = resumed->second;
  client.host_name = request.host_name;
  client.role = request.role;
  client.last_heard = now();
  // An older link of the same client is no longer its own.
  for (auto& [number, other] : connections_) {
    if (other.get() != &connection && other->client == client.id) other->client = {};
  }
  if (connection.client && connection.client != client.id) {
    const auto before = clients_.find(connection.client);
    if (before != clients_.end()) before->second.peer = nullptr;
  }
  client.peer = &connection.peer();
  connection.client = client.id;
  call.answer(msg::RegisterClient::Reply{
      client.id, state_.epoch(), config_.pool, benefactor_list_for(connection),
      config_.membership.proof_of(client.id, connection.member())});
}

void Service::register_benefactor(Connection& connection, msg::RegisterBenefactor request,
                                  const Call& call) {
  if (!config_.membership.owns_life(request, connection.member())) {
    log::warning("a benefactor on {} was refused: it claims to be another one", request.host_name);
    return call.fail(Code::kRefused, "register benefactor");
  }
  if (!config_.membership.examine(request, connection.member())) {
    log::warning("a benefactor on {} does not prove what it says of earlier epochs",
                 request.host_name);
  }
  const bool too_large = request.arena_bytes / limits::kExtentAlignment >= (std::uint64_t{1} << 40);
  if (request.arena_bytes == 0 || too_large || request.addresses.empty() || connection.client) {
    return call.fail(Code::kInvalidArgument, "register benefactor");
  }
  const BenefactorId known = benefactor_of(request);
  const auto status = benefactors_.find(known);
  const bool told = status != benefactors_.end() && !status->second.info.addresses.empty();
  if (outdated({request.newest_epoch, request.newest_sequence, told}, call)) return;
  if (calls_roll()) {
    awaited_.erase(known);
    at_roll_call_.push_back([this, number = connection.number(), request, call] {
      const auto found = connections_.find(number);
      if (found != connections_.end()) register_benefactor(*found->second, request, call);
    });
    if (awaited_.empty()) end_roll_call();
    return;
  }
  const auto admit = [this, number = connection.number(), request,
                      call](const Result<BenefactorId>& id) {
    if (!id) return call.fail(id.error());
    // The link may have gone while the journal was written.
    const auto found = connections_.find(number);
    if (found != connections_.end()) admit_benefactor(*found->second, *id, request, call);
  };
  if (known) {
    if (state_.benefactors().at(known).arena_bytes != request.arena_bytes) {
      return call.fail(Code::kInvalidArgument, "register benefactor");
    }
    // The next manager may not know of it, and give its number to another one.
    if (const auto joining = joining_.find(known); joining != joining_.end()) {
      return joining->second.push_back(admit);
    }
    return admit_benefactor(connection, known, request, call);
  }
  // One that no client is told of must not be written to.
  const auto there = std::ranges::count_if(
      benefactors_, [](const auto& each) { return each.second.peer != nullptr; });
  if (there >= kBenefactorsMax) {
    return call.fail(Code::kRefused, "register benefactor",
                     "The pool has " + std::to_string(there) +
                         " benefactors, and more are not supported; let each lend more memory.");
  }
  const auto& all = state_.benefactors();
  const BenefactorId id{all.empty() ? 1 : all.rbegin()->first.value + 1};
  // Not usable before clients of a life that the journal does not know are fenced.
  space_.add(id, request.arena_bytes, false);
  joining_[id].push_back(admit);
  execute(AddBenefactor{id, request.life_high, request.life_low, request.arena_bytes,
                        request.host_name},
          [this, id](const Result<Outcome>& outcome) {
            const auto waiting = std::exchange(joining_.at(id), {});
            if (outcome) joining_.erase(id);  // otherwise nobody gets that number any more
            const auto joined = outcome.map([id](const Outcome&) { return id; });
            for (const auto& each : waiting) each(joined);
          });
}

/// None: one that the journal does not know.
BenefactorId Service::benefactor_of(const msg::RegisterBenefactor& request) const {
  for (const auto& [id, record] : state_.benefactors()) {
    if (record.life_high == request.life_high && record.life_low == request.life_low) return id;
  }
  return {};
}

/// True: a later manager has the pool, or this one's journal has lost its end, and it must change
/// nothing any more.
bool Service::outdated(const Known& known, const Call& call) {
  if (!outdated_.empty()) {
    call.fail(Code::kBusy, "manager.epoch", outdated_);
    return true;
  }
  const bool superseded = known.epoch > state_.epoch() && !same_block(known.epoch, state_.epoch());
  const std::string lost = superseded ? std::string() : damage(known);
  if (!superseded && lost.empty()) return false;
  outdated_ = superseded ? "Another manager has taken the pool over."
                         : "The journal of the manager is damaged.";
  call.fail(Code::kBusy, "manager.epoch", outdated_);
  if (std::exchange(journal_failed_, true)) return true;
  if (superseded && config_.on_superseded) config_.on_superseded(known.epoch);
  if (!superseded && config_.on_damaged) config_.on_damaged(lost);
  return true;
}

/// What somebody was told is in the journal, but for the end that it has lost: in words. Who is
/// told of an epoch is told after the journal has it.
std::string Service::damage(const Known& known) const {
  const Epoch own = state_.epoch();
  if (known.epoch > own || (known.epoch == own && !known.told)) {
    return fmt::format("its end is missing; epoch {} had begun, and it had no record of that",
                       known.epoch.value);
  }
  if (!state_.lacks(known.epoch, known.sequence)) return {};
  return fmt::format("its end is missing; record {} of epoch {} was answered", known.sequence,
                     known.epoch.value);
}

void Service::end_roll_call() {
  roll_call_until_ = {};
  awaited_.clear();
  const auto waiting = std::exchange(at_roll_call_, {});
  for (const auto& call : waiting) call();
}

void Service::follow(const msg::FollowManager& request, const Call& call) {
  // It knows the epoch from this manager, or from one whose journal that was.
  const bool told = request.newest_epoch < state_.epoch() || standby_heard_;
  if (outdated({request.newest_epoch, 0, told}, call)) return;
  // What does not work any more is not followed: the standby takes over.
  if (journal_failed_) return call.fail(Code::kReadOnly, "follow");
  if (request.address.empty()) return call.fail(Code::kInvalidArgument, "follow");
  if (!config_.standby.empty() && config_.standby != request.address) {
    return call.fail(Code::kExists, "follow", "Its standby is at " + config_.standby + ".");
  }
  if (config_.standby.empty()) {
    if (config_.remember_standby && !config_.remember_standby(request.address)) {
      return call.fail(Code::kReadOnly, "follow");
    }
    config_.standby = request.address;
    log::info("a standby at {} follows this manager", request.address);
  }
  standby_heard_ = now();
  call.answer(logs_->follow(request));
}

void Service::admit_benefactor(Connection& connection, BenefactorId id,
                               const msg::RegisterBenefactor& request, const Call& call) {
  for (auto& [number, other] : connections_) {
    if (other.get() != &connection && other->benefactor == id) other->benefactor = {};
  }
  connection.benefactor = id;
  BenefactorStatus& status = benefactors_[id];
  msg::BenefactorInfo& info = status.info;
  info = {id,
          request.addresses,
          request.host_token,
          request.host_name,
          request.arena_bytes,
          space_.free_bytes(id),
          msg::BenefactorState::kAlive,
          request.pid};
  status.member = connection.member();
  status.peer = &connection.peer();
  status.last_heard = now();
  status.leaving = false;
  status.log_bytes_max = request.log_bytes_max;
  log::info("benefactor {} on {} lends {} bytes", id.value, info.host_name, info.arena_bytes);
  const ClientId first_client{state_.epoch().value << 40};
  call.answer(msg::RegisterBenefactor::Reply{
      id, state_.epoch(), first_client, config_.pool,
      config_.membership.proof_of(Membership::Told{id, state_.epoch(), 0}, status.member)});
  // Clients of earlier epochs are not known here: nothing is granted before they are fenced.
  if (!space_.usable(id)) fence(id, first_client, true);
  benefactors_changed();
}

/// The copies that make up for it are durable first, and no other manager has taken over that does
/// not know of them. Where that takes long it is asked for again.
void Service::let_go(BenefactorId id, const Call& call) {
  const auto answer = [this, id, call, alive = std::weak_ptr<int>(alive_)](bool may_go) {
    if (!alive.expired()) call.answer(heartbeat_reply(id, may_go));
  };
  execute(ChangeCopies{}, [this, id, answer](const Result<Outcome>& outcome) {
    answer(outcome.has_value() && copies_->may_go(id));
  });
  reactor_.schedule_after(limits::kHeartbeatInterval, [answer] { answer(false); });
}

msg::BenefactorHeartbeat::Reply Service::heartbeat_reply(BenefactorId id, bool may_go) const {
  const auto& member = benefactors_.at(id).member;
  return {may_go, durable_,
          config_.membership.proof_of(Membership::Told{id, state_.epoch(), durable_}, member)};
}

void Service::closed(Connection& connection) {
  const auto client = clients_.find(connection.client);
  if (client != clients_.end() && client->second.peer == &connection.peer()) {
    client->second.peer = nullptr;  // it may come back until its lease ends
  }
  const auto benefactor = benefactors_.find(connection.benefactor);
  if (benefactor != benefactors_.end() && benefactor->second.peer == &connection.peer()) {
    benefactor->second.peer = nullptr;
    benefactor->second.info.state = msg::BenefactorState::kSilent;
    log::warning("benefactor {} on {} has gone", benefactor->first.value,
                 benefactor->second.info.host_name);
    benefactors_changed();
  }
  // Calls that were made while it told others of its end are answered first, in the next turn.
  // Those of one that ends later in this turn come after this.
  ended_.push_back(std::move(connections_.extract(connection.number()).mapped()));
  reactor_.schedule_after(Duration::zero(), [this, alive = alive()] {
    if (!alive.expired()) ended_.pop_front();
  });
}

// ---- leases -----------------------------------------------------------------------------------

void Service::check_leases() {
  std::vector<ClientId> ended;
  for (const auto& [id, client] : clients_) {
    if (now() - client.last_heard > limits::kLease) ended.push_back(id);
  }
  for (const ClientId id : ended) {
    log::warning("client {} on {} was silent for its whole lease: its sessions are ended", id.value,
                 clients_.at(id).host_name);
    end_client(id, false);
  }
  bool changed = false;
  for (auto& [id, status] : benefactors_) {
    const Duration silence = now() - status.last_heard;
    auto wanted = status.info.state;
    if (status.peer != nullptr && silence <= limits::kLease) {
      wanted = msg::BenefactorState::kAlive;
    } else if (silence > kGoneAfter) {
      wanted = msg::BenefactorState::kGone;
    } else {
      wanted = msg::BenefactorState::kSilent;
    }
    changed |= wanted != status.info.state;
    status.info.state = wanted;
  }
  if (changed) benefactors_changed();
}

void Service::end_client(ClientId id, bool clean) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const auto sessions = found->second.sessions;
  for (const SessionId session : sessions) {
    end_generation(sessions_.at(session));
    end_session(session, clean);
  }
  const auto pins = found->second.pins;
  for (const auto& [file, version] : pins) {
    unuse(file, id);
    unpin(file, version);
  }
  if (!sessions.empty() && found->second.peer != nullptr) {
    msg::Invalidate notice;
    notice.fenced.assign(sessions.begin(), sessions.end());
    // A client that cannot be told learns it from the answer to its next request.
    if (!found->second.peer->notify(notice)) log::debug("client {} could not be told", id.value);
  }
  clients_.erase(found);
  for (const BenefactorId benefactor : space_.quarantined_at(id)) fence(benefactor, id, false);
}

// ---- fences -----------------------------------------------------------------------------------

void Service::fence(BenefactorId benefactor, ClientId client, bool and_older) {
  fences_[{benefactor, client}].and_older = and_older;
  run_fences();
}

void Service::run_fences() {
  for (auto& [key, fence] : fences_) {
    const auto [benefactor, client] = key;
    rpc::Peer* peer = peer_of(benefactor);
    if (fence.in_flight || peer == nullptr || now() < fence.next) continue;
    fence.in_flight = true;
    peer->call(msg::FenceClient{client, fence.and_older}, limits::kCallDeadline,
               [this, key = key, alive = std::weak_ptr<int>(alive_)](rpc::Answer answer) {
                 if (alive.expired()) return;
                 const auto found = fences_.find(key);
                 if (found == fences_.end()) return;
                 found->second.in_flight = false;
                 found->second.next = now() + kFenceRetry;
                 const auto* reply =
                     answer ? std::get_if<msg::FenceClient::Reply>(&*answer) : nullptr;
                 if (reply == nullptr || !reply->fenced) return;
                 const bool all = found->second.and_older;
                 fences_.erase(found);
                 if (all) fenced_.insert(key.first);
                 if (all && now() >= resume_until_) space_.set_usable(key.first);
                 space_.fenced(key.first, key.second);
                 retry_waiting();
                 checks_->run();
               });
  }
}

/// What no client of before has said that it has stored is free from now on.
void Service::end_grace() {
  if (resume_until_ == Time{} || now() < resume_until_) return;
  resume_until_ = {};
  for (const BenefactorId benefactor : fenced_) space_.set_usable(benefactor);
}

// ---- telling clients --------------------------------------------------------------------------

std::vector<msg::BenefactorInfo> Service::benefactor_list() const {
  std::vector<msg::BenefactorInfo> out;
  for (const auto& [id, status] : benefactors_) {
    // One that has not registered in this epoch has no address. Until it is taken as gone it is
    // expected back, and clients wait for it.
    const bool expected = status.info.state != msg::BenefactorState::kGone;
    if (status.info.addresses.empty() && !expected) continue;
    out.push_back(status.info);
    out.back().free_bytes = space_.free_bytes(id);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return static_cast<int>(a.state) < static_cast<int>(b.state);
  });
  if (std::ssize(out) > kBenefactorsMax) out.resize(kBenefactorsMax);
  return out;
}

/// With tickets for the client at that link's other end.
std::vector<msg::BenefactorInfo> Service::benefactor_list_for(const Connection& connection) const {
  std::vector<msg::BenefactorInfo> out = benefactor_list();
  for (msg::BenefactorInfo& info : out) {
    config_.membership.add_ticket(info, benefactors_.at(info.id).member, connection.member(),
                                  connection.client);
  }
  return out;
}

void Service::list_benefactors(const Connection& connection, const Call& call) const {
  call.answer(msg::ListBenefactors::Reply{benefactor_list_for(connection)});
}

msg::BenefactorInfo Service::source(BenefactorId source, BenefactorId reader,
                                    ClientId number) const {
  const BenefactorStatus& from = benefactors_.at(source);
  msg::BenefactorInfo info = from.info;
  config_.membership.add_ticket(info, from.member, benefactors_.at(reader).member, number);
  return info;
}

void Service::use(FileId file, ClientId client) { ++users_[file][client]; }

void Service::unuse(FileId file, ClientId client) {
  const auto found = users_.find(file);
  if (found == users_.end()) return;
  const auto of_client = found->second.find(client);
  if (of_client != found->second.end() && --of_client->second == 0) {
    found->second.erase(of_client);
  }
  if (found->second.empty()) users_.erase(found);
}

msg::Invalidate* Service::invalidate_of(ClientId id) {
  const auto client = clients_.find(id);
  if (client == clients_.end() || client->second.peer == nullptr) return nullptr;
  to_invalidate_.insert(id);
  if (!invalidate_posted_) {
    invalidate_posted_ = true;
    // At the end of the turn, so that one notice tells of all its changes.
    reactor_.schedule_after(Duration::zero(), [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired()) flush_invalidates();
    });
  }
  return &client->second.invalidate;
}

void Service::flush_invalidates() {
  invalidate_posted_ = false;
  std::set<ClientId> ids;
  ids.swap(to_invalidate_);
  for (const ClientId id : ids) {
    const auto client = clients_.find(id);
    if (client == clients_.end() || client->second.peer == nullptr) continue;
    msg::Invalidate notice;
    std::swap(notice, client->second.invalidate);
    // A notice that cannot be sent is made up for by the end of the cache's lease.
    if (!client->second.peer->notify(notice)) log::debug("a notice to client {} is lost", id.value);
  }
}

void Service::entry_changed(FileId directory, const std::string& name, ClientId except) {
  sets_->folder_changed(directory);
  watchers_.for_each(directory, now(), [&](ClientId client) {
    if (client == except) return;
    msg::Invalidate* notice = invalidate_of(client);
    if (notice != nullptr && notice->entries.size() < limits::kDirectoryPageMax) {
      notice->entries.push_back({directory, name});
    }
  });
}

void Service::file_changed(FileId id, ClientId except) {
  const auto tell = [&](ClientId client) {
    if (client == except) return;
    msg::Invalidate* notice = invalidate_of(client);
    if (notice == nullptr || notice->files.size() >= limits::kMapPageSlicesMax) return;
    if (std::find(notice->files.begin(), notice->files.end(), id) == notice->files.end()) {
      notice->files.push_back(id);
    }
  };
  const File* file = state_.file(id);
  if (file != nullptr)
    sets_->folder_changed(file->type == FileType::kDirectory ? id : file->parent);
  if (file != nullptr && file->parent) watchers_.for_each(file->parent, now(), tell);
  if (file != nullptr) {
    for (const Link& link : file->links) watchers_.for_each(link.parent, now(), tell);
  }
  if (file != nullptr && file->type == FileType::kDirectory) watchers_.for_each(id, now(), tell);
  const auto users = users_.find(id);
  if (users == users_.end()) return;
  for (const auto& [client, count] : users->second) tell(client);
}

void Service::benefactors_changed() {
  domains_.update(benefactors_);
  copies_->benefactors_changed();
  logs_->run();
  for (const auto& [id, client] : clients_) {
    msg::Invalidate* notice = invalidate_of(id);
    if (notice != nullptr) notice->benefactors_changed = true;
  }
}

}  // namespace stdchk::manager
