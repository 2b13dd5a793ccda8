#include "manager/service/benefactor_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kLostAfter = 2 * limits::kLease;
constexpr std::ptrdiff_t kBenefactorsMax = 500;  // as many as a message surely holds

}  // namespace

BenefactorService::BenefactorService(Pool& pool, Neighbours neighbours)
    : pool_(pool), to_(neighbours) {}

// ---- registration -----------------------------------------------------------------------------

/// Answers the call with an error, and returns false, when the request cannot be a benefactor's.
bool BenefactorService::admissible(const Connection& connection, msg::RegisterBenefactor& request,
                                   const Call& call) const {
  const Membership& membership = pool_.config().membership;
  if (!membership.is_only_owner_of_life(request, connection.member())) {
    log::warning("a benefactor on {} was refused: it claims the identity of another benefactor",
                 request.host_name);
    call.fail(Code::kRefused, "register benefactor");
    return false;
  }
  if (!membership.examine(request, connection.member())) {
    log::warning("a benefactor on {} does not prove what it says of earlier epochs",
                 request.host_name);
  }
  const bool too_large = request.arena_bytes / limits::kExtentAlignment >= (std::uint64_t{1} << 40);
  if (request.arena_bytes == 0 || too_large || request.addresses.empty() || connection.client) {
    call.fail(Code::kInvalidArgument, "register benefactor");
    return false;
  }
  return true;
}

void BenefactorService::serve(Connection& connection, msg::RegisterBenefactor request,
                              const Call& call) {
  if (!admissible(connection, request, call)) return;
  const BenefactorId known = benefactor_of(request);
  const auto status = pool_.benefactors().find(known);
  const bool met = status != pool_.benefactors().end() && !status->second.info.addresses.empty();
  if (to_.admissions.is_outdated({request.newest_epoch, request.newest_sequence, met}, call)) {
    return;
  }
  const auto again = [this, number = connection.number(), request, call] {
    Connection* const found = to_.connections.find(number);
    if (found != nullptr) serve(*found, request, call);
  };
  if (to_.admissions.wait_for_benefactors(known, again)) return;
  const auto admit_it = [this, number = connection.number(), request,
                         call](const Result<BenefactorId>& id) {
    if (!id) return call.fail(id.error());
    // The link may have gone while the journal was written.
    Connection* const found = to_.connections.find(number);
    if (found != nullptr) admit(*found, *id, request, call);
  };
  if (known) {
    if (pool_.state().benefactors().at(known).arena_bytes != request.arena_bytes) {
      return call.fail(Code::kInvalidArgument, "register benefactor");
    }
    // Until the record is durable, the next manager may give the number to another benefactor.
    if (const auto joining = joining_.find(known); joining != joining_.end()) {
      return joining->second.push_back(admit_it);
    }
    return admit(connection, known, request, call);
  }
  // Refuse benefactors beyond what a client's list can hold: no client could reach them.
  const auto there = std::ranges::count_if(
      pool_.benefactors(), [](const auto& each) { return each.second.peer != nullptr; });
  if (there >= kBenefactorsMax) {
    return call.fail(Code::kRefused, "register benefactor",
                     "The pool has " + std::to_string(there) +
                         " benefactors, and more are not supported; let each lend more memory.");
  }
  add(request, admit_it);
}

/// Journals a new benefactor, then calls `admit`.
void BenefactorService::add(const msg::RegisterBenefactor& request,
                            std::function<void(const Result<BenefactorId>&)> admit) {
  const auto& all = pool_.state().benefactors();
  const BenefactorId id{all.empty() ? 1 : all.rbegin()->first.value + 1};
  // Not usable before clients of a life that the journal does not know are fenced.
  pool_.space().add(id, request.arena_bytes, false);
  joining_[id].push_back(std::move(admit));
  pool_.execute(AddBenefactor{id, request.life_high, request.life_low, request.arena_bytes,
                              request.host_name},
                [this, id](const Result<Affected>& outcome) {
                  const auto waiting = std::exchange(joining_.at(id), {});
                  if (outcome) joining_.erase(id);  // a failed number is not reused
                  const auto joined = outcome.map([id](const Affected&) { return id; });
                  for (const auto& each : waiting) each(joined);
                });
}

/// Returns no id for a benefactor that the journal does not know.
BenefactorId BenefactorService::benefactor_of(const msg::RegisterBenefactor& request) const {
  for (const auto& [id, record] : pool_.state().benefactors()) {
    if (record.life_high == request.life_high && record.life_low == request.life_low) return id;
  }
  return {};
}

void BenefactorService::admit(Connection& connection, BenefactorId id,
                              const msg::RegisterBenefactor& request, const Call& call) {
  to_.connections.for_each([&](Connection& other) {
    if (&other != &connection && other.benefactor == id) other.benefactor = {};
  });
  connection.benefactor = id;
  BenefactorStatus& status = pool_.mutable_benefactors()[id];
  msg::BenefactorInfo& info = status.info;
  info = {id,
          request.addresses,
          request.host_token,
          request.host_name,
          request.arena_bytes,
          pool_.space().free_bytes(id),
          msg::BenefactorState::kAlive,
          request.pid};
  status.member = connection.member();
  status.grant_key = pool_.config().membership.grant_key(status.member);
  status.peer = &connection.peer();
  status.last_heard = pool_.now();
  status.leaving = false;
  status.log_bytes_max = request.log_bytes_max;
  log::info("benefactor {} on {} lends {} bytes", id.value, info.host_name, info.arena_bytes);
  const Epoch epoch = pool_.state().epoch();
  const ClientId first_client{epoch.value << 40};
  call.answer(msg::RegisterBenefactor::Reply{
      id, epoch, first_client, pool_.config().pool,
      pool_.config().membership.proof_of(Membership::IssuedNumber{id, epoch, 0}, status.member)});
  // Clients of earlier epochs are not known here: nothing is granted before they are fenced.
  if (!pool_.space().usable(id)) to_.fences.add(id, first_client, true);
  changed();
}

// ---- leases -----------------------------------------------------------------------------------

void BenefactorService::serve(Connection& connection, const msg::BenefactorHeartbeat& request,
                              const Call& call) {
  Benefactors& benefactors = pool_.mutable_benefactors();
  const auto found = benefactors.find(connection.benefactor);
  if (!connection.benefactor || request.benefactor != connection.benefactor ||
      found == benefactors.end()) {
    return call.fail(Code::kRefused, "manager.heartbeat");
  }
  const BenefactorId id = found->first;
  BenefactorStatus& status = found->second;
  status.last_heard = pool_.now();
  if (request.leaving && !status.leaving) {
    log::info("benefactor {} on {} wants to leave", id.value, status.info.host_name);
    status.leaving = true;
    changed();
  }
  if (status.leaving && to_.copies.may_leave(id)) return answer_when_leaving_is_safe(id, call);
  call.answer(heartbeat_reply(id, false));
}

/// Lets the benefactor leave when the copies that replace its own are durable. Any manager that
/// takes over then knows these copies. When the journal takes longer than a heartbeat's interval,
/// the benefactor has to ask again.
void BenefactorService::answer_when_leaving_is_safe(BenefactorId id, const Call& call) {
  const auto answer = [this, id, call, alive = pool_.alive()](bool may_leave) {
    if (!alive.expired()) call.answer(heartbeat_reply(id, may_leave));
  };
  pool_.execute(ChangeCopies{}, [this, id, answer](const Result<Affected>& outcome) {
    answer(outcome.has_value() && to_.copies.may_leave(id));
  });
  pool_.reactor().schedule_after(limits::kHeartbeatInterval, [answer] { answer(false); });
}

msg::BenefactorHeartbeat::Reply BenefactorService::heartbeat_reply(BenefactorId id,
                                                                   bool may_leave) const {
  const std::uint64_t durable = pool_.journal().durable();
  const Membership::IssuedNumber issued{id, pool_.state().epoch(), durable};
  return {may_leave, durable,
          pool_.config().membership.proof_of(issued, pool_.benefactors().at(id).member)};
}

void BenefactorService::closed(Connection& connection) {
  Benefactors& benefactors = pool_.mutable_benefactors();
  const auto found = benefactors.find(connection.benefactor);
  if (found == benefactors.end() || found->second.peer != &connection.peer()) return;
  found->second.peer = nullptr;
  found->second.info.state = msg::BenefactorState::kSilent;
  log::warning("benefactor {} on {} has gone", found->first.value, found->second.info.host_name);
  changed();
}

void BenefactorService::check_leases() {
  bool any_changed = false;
  for (auto& [id, status] : pool_.mutable_benefactors()) {
    const Duration silence = pool_.now() - status.last_heard;
    auto wanted = status.info.state;
    if (status.peer != nullptr && silence <= limits::kLease) {
      wanted = msg::BenefactorState::kAlive;
    } else if (silence > kLostAfter) {
      wanted = msg::BenefactorState::kGone;
    } else {
      wanted = msg::BenefactorState::kSilent;
    }
    any_changed |= wanted != status.info.state;
    status.info.state = wanted;
  }
  if (any_changed) changed();
}

void BenefactorService::discount(Duration pause) {
  for (auto& [id, status] : pool_.mutable_benefactors()) {
    status.last_heard = std::min(status.last_heard + pause, pool_.now());
  }
}

void BenefactorService::changed() {
  pool_.update_domains();
  to_.copies.benefactors_changed();
  to_.near.benefactors_changed();
  to_.logs.run();
  to_.notices.benefactors_changed();
}

// ---- lists ------------------------------------------------------------------------------------

std::vector<msg::BenefactorInfo> BenefactorService::list() const {
  std::vector<msg::BenefactorInfo> out;
  for (const auto& [id, status] : pool_.benefactors()) {
    // A benefactor without an address has not registered in this epoch. It is listed until it is
    // presumed lost: it is expected back, and clients wait for it.
    const bool expected = status.info.state != msg::BenefactorState::kGone;
    if (status.info.addresses.empty() && !expected) continue;
    out.push_back(status.info);
    out.back().free_bytes = pool_.space().free_bytes(id);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return static_cast<int>(a.state) < static_cast<int>(b.state);
  });
  if (std::ssize(out) > kBenefactorsMax) out.resize(kBenefactorsMax);
  return out;
}

std::vector<msg::BenefactorInfo> BenefactorService::list_for(const Connection& connection) const {
  std::vector<msg::BenefactorInfo> out = list();
  for (msg::BenefactorInfo& info : out) {
    pool_.config().membership.add_ticket(info, pool_.benefactors().at(info.id).member,
                                         connection.member(), connection.client);
  }
  return out;
}

void BenefactorService::serve(Connection& connection, const msg::ListBenefactors&,
                              const Call& call) const {
  call.answer(msg::ListBenefactors::Reply{list_for(connection)});
}

}  // namespace stdchk::manager
