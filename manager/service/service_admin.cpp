// Requests of administrators: copies, scrub, check, garbage.
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/parity_planner.h"
#include "manager/replication/scrubber.h"
#include "manager/service/service.h"
#include "manager/space/audit.h"
#include "manager/space/compactor.h"
#include "manager/space/garbage_collector.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kArenasTold = 1000;  // certainly fits into a message

}  // namespace

void Service::serve(ClientRecord&, const msg::GetDebt& request, const Call& call) {
  const VersionData* version = state_.version(request.file, request.version);
  if (version == nullptr) return call.fail(Code::kStale, "get debt");
  if (copies_->has_lost(*version)) return call.fail(Code::kDataLost, "get debt");
  // Answers when durable: a crash must not undo a copy that the answer reports.
  when_durable([call, reply = copies_->debt_of(*version)] { call.answer(reply); });
}

void Service::serve(ClientRecord&, const msg::Scrub& request, const Call& call) {
  if (request.start) scrubber_->start();
  call.answer(scrubber_->figures());
}

void Service::serve(ClientRecord&, const msg::CheckMetadata&, const Call& call) {
  call.answer(Audit(*this).reply());
}

/// Frees leaked space at once. No grant contains it, so a client has returned it and writes there
/// no longer. Space that a client did not return is quarantined, not leaked.
void Service::serve(ClientRecord&, const msg::CollectGarbage& request, const Call& call) {
  msg::CollectGarbage::Reply reply;
  if (request.round > 0) {
    reply.round = request.round;
    reply.ended = garbage_->ended(request.round);
    if (reply.ended) reply.arenas = garbage_->arenas();
    if (reply.arenas.size() > kArenasTold) reply.arenas.resize(kArenasTold);
    return call.answer(std::move(reply));
  }
  const Audit audit(*this);
  reply = audit.garbage();
  if (request.execute) {
    for (const auto& leak : audit.leaked()) {
      log::warning("benefactor {}: {} bytes at {} were leaked and are free again",
                   leak.benefactor.value, leak.length, leak.offset);
      space_.give(leak.benefactor, {leak.offset, leak.length});
    }
    retry_waiting();
  }
  reply.round = garbage_->start(request.execute);
  call.answer(std::move(reply));
}

std::vector<Claim> Service::claims() const {
  std::vector<Claim> out = claims_beside_chunks();
  state_.chunks().for_each([&](ChunkIndex index) {
    if (!state_.chunks().has_copies(index)) return;
    const std::uint64_t bytes = extent_bytes(state_.chunks().length(index));
    for (const Extent& copy : state_.chunks().get(index).copies) {
      out.push_back({copy.benefactor, {copy.offset, bytes}, ClaimKind::kUsed});
    }
  });
  return out;
}

std::vector<Claim> Service::claims_beside_chunks() const {
  std::vector<Claim> out;
  const auto add = [&](BenefactorId benefactor, Range range, ClaimKind kind) {
    if (range.length > 0) out.push_back({benefactor, range, kind});
  };
  for (const auto& each : benefactors_) {
    const BenefactorId id = each.first;
    space_.for_each_free(id, [&](Range range) { add(id, range, ClaimKind::kFree); });
    space_.for_each_quarantined(id, [&](Range range) { add(id, range, ClaimKind::kQuarantined); });
  }
  for (const auto& [id, session] : sessions_) {
    for (const auto& granted : session.grants) {
      const GrantRecord& record = granted.second;
      record.for_each_unused([&](std::uint64_t offset, std::uint64_t bytes) {
        add(record.grant.benefactor, {offset, bytes}, ClaimKind::kGranted);
      });
    }
  }
  for (const auto& [sequence, freed] : to_free_) {
    for (const FreedExtent& one : freed) {
      add(one.extent.benefactor, {one.extent.offset, one.bytes}, ClaimKind::kFreeing);
    }
  }
  const auto reserve = [&](BenefactorId benefactor, Range range) {
    add(benefactor, range, ClaimKind::kReserved);
  };
  copies_->for_each_reserved(reserve);
  parity_->for_each_reserved(reserve);
  compactor_->for_each_reserved(reserve);
  garbage_->for_each_reserved(reserve);
  return out;
}

}  // namespace stdchk::manager
