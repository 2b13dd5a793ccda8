#include "client/net/peers.h"

#include <algorithm>
#include <limits>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/secure/ticket.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
constexpr Duration kQueueFullWait = 1ms;
/// A rail counts as at most this many times slower than the fastest rail.
constexpr double kSlowest = 64;

std::size_t bytes_of(const Transfer& transfer) {
  std::size_t bytes = 0;
  for (const MutableByteSpan piece : transfer.pieces) bytes += piece.size();
  return bytes;
}

}  // namespace

void Transfer::complete(Status status) {
  BenefactorLink* const link = link_;
  link_ = nullptr;
  if (link != nullptr) link->ended(*this, *rail_, status.has_value());
  finished(std::move(status));
  if (link != nullptr) link->start_waiting();
}

BenefactorLink::BenefactorLink(Peers& peers, msg::BenefactorInfo info) : peers_(peers) {
  update(std::move(info));
}

BenefactorLink::~BenefactorLink() {
  closing_ = true;
  peers_.reactor_.cancel(retry_);
  fail_waiting(Error{Code::kPeerLost, 0, "client.benefactor"});
  rails_.clear();
}

void BenefactorLink::update(msg::BenefactorInfo info) {
  info_ = std::move(info);
  add_rails();
  if (waiting_.empty()) return;
  if (!info_.addresses.empty() && !open_rails(false)) return fail_waiting(unreachable_error());
  start_waiting();
}

Error BenefactorLink::unreachable_error() const {
  if (!rails_.empty()) return rails_.back()->last_error();
  return Error{Code::kPeerLost, 0, "client.benefactor: no transport in common"};
}

/// Adds a rail for each new address.
void BenefactorLink::add_rails() {
  for (const std::string& address : info_.addresses) {
    const auto known = [&](const auto& rail) { return rail->address() == address; };
    if (std::any_of(rails_.begin(), rails_.end(), known)) continue;
    std::vector<transport::Endpoint*> endpoints;
    for (transport::Endpoint* endpoint : peers_.endpoints_) {
      const bool too_far =
          endpoint->capabilities().same_host_only && info_.host_token != peers_.config_.host_token;
      if (transport::reaches(*endpoint, address) && !too_far) endpoints.push_back(endpoint);
    }
    if (endpoints.empty()) continue;
    const auto same_kind = [&](const auto& rail) {
      return rail->transport() == endpoints.front()->capabilities().name;
    };
    const auto number = std::count_if(rails_.begin(), rails_.end(), same_kind);
    rails_.push_back(std::make_unique<Rail>(*this, peers_.reactor_, address, std::move(endpoints),
                                            static_cast<std::size_t>(number)));
  }
  std::stable_partition(rails_.begin(), rails_.end(),
                        [](const auto& rail) { return rail->same_host_only(); });
}

/// Opens all rails of the best transport that may work. Returns true when a rail is ready or
/// connecting.
bool BenefactorLink::open_rails(bool parked_too) {
  const msg::Attach attach{peers_.client_, info_.id};
  const auto ticket = transport::secure::ticket_of(info_);
  std::string_view kind;
  for (const auto& rail : rails_) {
    if (!kind.empty() && rail->transport() != kind) continue;
    if (rail->open(attach, ticket, parked_too)) kind = rail->transport();
  }
  return !kind.empty();
}

void BenefactorLink::submit(Transfer& transfer) {
  const bool all_parked = std::all_of(rails_.begin(), rails_.end(), [](const auto& rail) {
    return rail->state() == Rail::State::kParked;
  });
  const bool expected = rails_.empty() && info_.addresses.empty();
  if (!open_rails(all_parked && !transfer.is_write) && !(expected && transfer.patient)) {
    return peers_.fail_later(transfer, unreachable_error());
  }
  waiting_.push_back(&transfer);
  start_waiting();
}

void BenefactorLink::on_ready(Rail& rail) {
  for (const auto& better : rails_) {
    if (better->transport() == rail.transport()) break;
    if (better->state() != Rail::State::kParked) continue;
    if (!peers_.logged_.emplace(better->transport()).second) continue;
    log::warning("benefactor {} on {} is reached by {}, because {} does not work: {}",
                 info_.id.value, info_.host_name, rail.transport(), better->transport(),
                 describe(better->last_error()));
  }
  start_waiting();
}

void BenefactorLink::on_parked(Rail& rail) {
  if (closing_ || waiting_.empty()) return;
  if (!open_rails(false)) return fail_waiting(rail.last_error());
  start_waiting();
}

/// Returns the ready rail of the best transport that will have moved `bytes` first. Returns nullptr
/// when no rail is ready, or all their queues are full.
Rail* BenefactorLink::best_rail(std::size_t bytes) {
  std::string_view kind;
  double fastest = 0;
  for (const auto& rail : rails_) {
    if (rail->state() != Rail::State::kReady) continue;
    if (kind.empty()) kind = rail->transport();
    if (rail->transport() == kind) {
      fastest = std::max(fastest, static_cast<double>(rail->meter().bytes_per_s()));
    }
  }
  Rail* best = nullptr;
  double best_time = std::numeric_limits<double>::max();
  for (const auto& rail : rails_) {
    if (rail->state() != Rail::State::kReady || rail->transport() != kind || rail->full()) continue;
    // A rail without a measured rate counts as fast as the fastest rail.
    double rate = rail->meter().bytes_per_s() == 0
                      ? fastest
                      : static_cast<double>(rail->meter().bytes_per_s());
    rate = std::max({rate, fastest / kSlowest, 1.0});
    const double time = static_cast<double>(rail->meter().bytes_in_flight() + bytes) / rate;
    if (time >= best_time) continue;
    best_time = time;
    best = rail.get();
  }
  return best;
}

Status BenefactorLink::start(Transfer& transfer, Rail& rail) {
  const transport::MemoryRegion* region = transfer.memory->region(rail.endpoint());
  STDCHK_ASSERT(region != nullptr);
  std::array<transport::LocalPiece, transport::kPiecesMax> pieces;
  std::size_t count = 0;
  for (const MutableByteSpan piece : transfer.pieces) {
    if (!piece.empty()) pieces[count++] = {piece.data(), piece.size(), region};
  }
  const std::span<const transport::LocalPiece> used(pieces.data(), count);
  const std::uint64_t offset = transfer.at.offset + transfer.skip;
  if (transfer.is_write) STDCHK_TRY(rail.present(transfer.grant));
  STDCHK_TRY(transfer.is_write ? rail.link().write(used, rail.key(), offset, transfer)
                               : rail.link().read(used, rail.key(), offset, transfer));
  transfer.link_ = this;
  transfer.rail_ = &rail;
  transfer.has_other_rail = false;
  transfer.moved_here = rail.same_host_only();
  transfer.direct_memory = rail.direct_memory();
  rail.count_started(bytes_of(transfer));
  return {};
}

void BenefactorLink::ended(Transfer& transfer, Rail& rail, bool good) {
  rail.count_ended(bytes_of(transfer), good);
  peers_.count(transfer, rail, good);
  if (good || closing_) return;
  transfer.has_other_rail = std::any_of(rails_.begin(), rails_.end(), [&](const auto& other) {
    return other.get() != &rail && other->state() != Rail::State::kParked;
  });
}

void BenefactorLink::start_waiting() {
  while (!closing_ && !waiting_.empty()) {
    Transfer& transfer = *waiting_.front();
    Rail* const rail = best_rail(bytes_of(transfer));
    if (rail == nullptr) break;
    const Status started = start(transfer, *rail);
    if (started.has_value()) {
      waiting_.pop_front();
    } else if (started.error().code == Code::kWouldBlock) {
      rail->set_full(true);
      peers_.reactor_.cancel(retry_);
      retry_ = peers_.reactor_.schedule_after(kQueueFullWait, [this] {
        for (const auto& each : rails_) each->set_full(false);
        start_waiting();
      });
    } else if (started.error().code == Code::kPeerLost) {
      return rail->park(started.error());  // on_parked() handles the waiting transfers
    } else {
      waiting_.pop_front();
      peers_.fail_later(transfer, started.error());
    }
  }
}

void BenefactorLink::fail_waiting(Error why) {
  std::deque<Transfer*> waiting;
  waiting.swap(waiting_);
  for (Transfer* transfer : waiting) peers_.fail_later(*transfer, why);
}

Peers::Peers(Reactor& reactor, std::vector<transport::Endpoint*> endpoints, Config config)
    : reactor_(reactor), endpoints_(std::move(endpoints)), config_(std::move(config)) {}

Peers::~Peers() {
  close();
  reactor_.cancel(failing_timer_);
}

void Peers::close() {
  // A destroyed link finishes its transfers. Their owners may submit again, and must not reach
  // these links.
  std::exchange(links_, {}).clear();
  fail_now();
}

void Peers::update(const std::vector<msg::BenefactorInfo>& benefactors) {
  std::set<BenefactorId> listed;
  for (const msg::BenefactorInfo& info : benefactors) {
    if (info.state == msg::BenefactorState::kGone) continue;
    listed.insert(info.id);
    auto& link = links_[info.id];
    if (link == nullptr) {
      link = std::make_unique<BenefactorLink>(*this, info);
    } else {
      link->update(info);
    }
  }
  std::vector<std::unique_ptr<BenefactorLink>> gone;
  for (auto it = links_.begin(); it != links_.end();) {
    if (listed.contains(it->first)) {
      ++it;
      continue;
    }
    gone.push_back(std::move(it->second));
    it = links_.erase(it);
  }
  // Destroys them later, because this may run within a callback of a lost link.
  if (!gone.empty()) {
    auto keep = std::make_shared<std::vector<std::unique_ptr<BenefactorLink>>>(std::move(gone));
    reactor_.schedule_after(Duration::zero(), [keep] { keep->clear(); });
  }
}

const std::vector<std::unique_ptr<Rail>>* Peers::rails(BenefactorId benefactor) const {
  const auto found = links_.find(benefactor);
  return found == links_.end() ? nullptr : &found->second->rails();
}

void Peers::count(const Transfer& transfer, const Rail& rail, bool good) {
  auto found = moved_.find(rail.transport());
  if (found == moved_.end()) found = moved_.try_emplace(std::string(rail.transport())).first;
  TransportFigures& moved = found->second;
  if (!good) {
    ++moved.failed;
  } else {
    (transfer.is_write ? moved.written_bytes : moved.read_bytes) += bytes_of(transfer);
  }
}

std::map<std::string, TransportFigures> Peers::figures() const {
  std::map<std::string, TransportFigures> out(moved_.begin(), moved_.end());
  for (const auto& [id, link] : links_) {
    for (const auto& rail : link->rails()) {
      TransportFigures& of = out[std::string(rail->transport())];
      const Rail::State state = rail->state();
      ++(state == Rail::State::kReady    ? of.ready
         : state == Rail::State::kParked ? of.parked
                                         : of.other);
    }
  }
  return out;
}

void Peers::submit(Transfer& transfer) {
  const auto found = links_.find(transfer.at.benefactor);
  if (found == links_.end()) {
    return fail_later(transfer, Error{Code::kPeerLost, 0, "client.benefactor unknown"});
  }
  found->second->submit(transfer);
}

void Peers::fail_later(Transfer& transfer, Error why) {
  transfer.has_other_rail = false;
  failing_.emplace_back(&transfer, why);
  if (failing_timer_) return;
  failing_timer_ = reactor_.schedule_after(Duration::zero(), [this] {
    failing_timer_ = {};
    fail_now();
  });
}

void Peers::fail_now() {
  for (const auto& [transfer, why] : std::exchange(failing_, {})) transfer->finished(fail(why));
}

}  // namespace stdchk::client
