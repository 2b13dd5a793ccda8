#include "manager/pool/pool.h"

#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {

Pool::Pool(Reactor& reactor, Journal& journal, Config config, std::function<void()> on_durable)
    : reactor_(reactor),
      config_(std::move(config)),
      journal_(journal, state_,
               {config_.on_journal_failure, std::move(on_durable),
                [this](const FreedExtent& freed) {
                  wrong_.erase(freed.extent);
                  space_.release(freed.extent.benefactor, {freed.extent.offset, freed.bytes});
                }}),
      domains_(config_.topology) {
  if (config_.pool.chunk_bytes == 0) config_.pool.chunk_bytes = limits::kChunkBytesDefault;
  if (config_.pool.stripe_width == 0) config_.pool.stripe_width = limits::kStripeWidthDefault;
}

Status Pool::load() {
  STDCHK_TRY(journal_.load(reactor_));
  for (const auto& [id, record] : state_.benefactors()) {
    space_.add(id, record.arena_bytes, false);
    BenefactorStatus& status = benefactors_[id];
    status.info.id = id;
    status.info.host_name = record.host_name;
    status.info.arena_bytes = record.arena_bytes;
    status.info.state = msg::BenefactorState::kSilent;
    status.last_heard = now();
  }
  Status occupied;
  state_.chunks().for_each([&](ChunkIndex index) {
    for (const Extent& copy : state_.chunks().get(index).copies) {
      if (!space_.occupy(copy, extent_bytes(state_.chunks().length(index)))) {
        occupied = fail(Code::kCorrupt, "manager.journal");
      }
    }
  });
  return occupied;
}

Policy Pool::policy(const File& file) const {
  Policy out = state_.files().policy(file);
  out.inherit(config_.policy);
  return out;
}

void Pool::unpin(FileId file, Version version) {
  state_.unpin(file, version);
  journal_.settle_freed();
}

void Pool::unkeep(FileId file) {
  state_.unkeep(file);
  journal_.settle_freed();
}

void Pool::hold(ChunkIndex chunk) {
  ++held_[chunk];
  state_.hold(chunk);
}

void Pool::release(ChunkIndex chunk) {
  if (--held_[chunk] == 0) held_.erase(chunk);
  state_.release(chunk);
  journal_.settle_freed();
}

rpc::Peer* Pool::peer_of(BenefactorId benefactor) const {
  const auto found = benefactors_.find(benefactor);
  return found == benefactors_.end() ? nullptr : found->second.peer;
}

std::optional<BenefactorId> Pool::some_benefactor() {
  for (std::size_t i = 0; i < benefactors_.size(); ++i) {
    auto at = benefactors_.upper_bound(BenefactorId{last_benefactor_});
    if (at == benefactors_.end()) at = benefactors_.begin();
    last_benefactor_ = at->first.value;
    if (at->second.peer != nullptr) return at->first;
  }
  return std::nullopt;
}

bool Pool::is_presumed_lost(BenefactorId benefactor) const {
  const auto found = benefactors_.find(benefactor);
  return found == benefactors_.end() || found->second.info.state == msg::BenefactorState::kGone;
}

msg::BenefactorInfo Pool::source(BenefactorId source, BenefactorId reader, ClientId number) const {
  const BenefactorStatus& from = benefactors_.at(source);
  msg::BenefactorInfo info = from.info;
  config_.membership.add_ticket(info, from.member, benefactors_.at(reader).member, number);
  return info;
}

bool Pool::is_readable(const Extent& copy) const {
  return !is_presumed_lost(copy.benefactor) && !is_wrong(copy);
}

bool Pool::is_readable(ChunkIndex chunk) const {
  const auto copies = state_.chunks().get(chunk).copies;
  return std::ranges::any_of(copies, [&](const Extent& copy) { return is_readable(copy); });
}

bool Pool::is_reachable(const Extent& copy) const {
  const auto found = benefactors_.find(copy.benefactor);
  return is_readable(copy) && found->second.peer != nullptr &&
         found->second.info.state == msg::BenefactorState::kAlive;
}

bool Pool::is_reachable(const std::vector<Extent>& copies) const {
  return std::ranges::any_of(copies, [&](const Extent& copy) { return is_reachable(copy); });
}

bool Pool::is_reconstructible(ChunkIndex chunk) const {
  const Stripe* const stripe = state_.stripes().of(chunk);
  if (stripe == nullptr) return false;
  const auto there = std::ranges::count_if(stripe->members,
                                           [&](ChunkIndex member) { return is_readable(member); });
  return there >= static_cast<std::ptrdiff_t>(stripe->data);
}

}  // namespace stdchk::manager
