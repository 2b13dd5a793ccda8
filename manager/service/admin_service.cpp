#include "manager/service/admin_service.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kArenasMax = 1000;  // certainly fits into a message
constexpr int kWalkShare = 20;  ///< walks take at most one part in this number of the time

}  // namespace

AdminService::AdminService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.state()), to_(std::move(neighbours)) {}

void AdminService::serve(ClientRecord&, const msg::GetDebt& request, const Call& call) {
  const VersionData* version = state_.version(request.file, request.version);
  if (version == nullptr) return call.fail(Code::kStale, "get debt");
  if (to_.copies.has_lost(*version)) return call.fail(Code::kDataLost, "get debt");
  // Answers when durable: a crash must not undo a copy that the answer reports.
  pool_.journal().when_durable(
      [call, reply = to_.copies.debt_of(*version)] { call.answer(reply); });
}

void AdminService::serve(ClientRecord&, const msg::Scrub& request, const Call& call) {
  if (request.start) to_.scrubber.start();
  call.answer(scrub_figures());
}

void AdminService::serve(ClientRecord&, const msg::CheckMetadata&, const Call& call) {
  call.answer(audit().reply());
}

/// Frees leaked space at once. No grant contains it, so a client has returned it and writes there
/// no longer. Space that a client did not return is quarantined, not leaked.
void AdminService::serve(ClientRecord&, const msg::CollectGarbage& request, const Call& call) {
  msg::CollectGarbage::Reply reply;
  if (request.round > 0) {
    reply.round = request.round;
    reply.ended = to_.garbage.ended(request.round);
    if (reply.ended) reply.arenas = to_.garbage.arenas();
    if (reply.arenas.size() > kArenasMax) reply.arenas.resize(kArenasMax);
    return call.answer(std::move(reply));
  }
  const Audit audited = audit();
  reply = audited.garbage();
  if (request.execute) {
    for (const auto& leak : audited.leaked()) {
      log::warning("benefactor {}: {} bytes at {} were leaked and are free again",
                   leak.benefactor.value, leak.length, leak.offset);
      pool_.space().release(leak.benefactor, {leak.offset, leak.length});
    }
    to_.placement.retry();
  }
  reply.round = to_.garbage.start(request.execute);
  call.answer(std::move(reply));
}

const AdminService::Walked& AdminService::walk() const {
  const Time began = pool_.now();
  if (began < next_walk_) return walked_;
  walked_ = {to_.drain.pending(kRootFile), 0};
  state_.stripes().for_each([&](const Stripe& stripe) {
    for (std::size_t i = stripe.data; i < stripe.members.size(); ++i) {
      walked_.parity_bytes += state_.chunks().length(stripe.members[i]);
    }
  });
  const Time ended = pool_.now();
  next_walk_ = ended + (ended - began) * kWalkShare;
  return walked_;
}

msg::StatPool::Reply AdminService::statistics() const {
  msg::StatPool::Reply reply;
  std::tie(reply.total_bytes, reply.free_bytes) = to_.totals.lent_and_free();
  reply.evictable_bytes =
      std::min(state_.chunks().drained_bytes(), reply.total_bytes - reply.free_bytes);
  reply.file_count = state_.files().size() - 1;
  reply.chunk_count = state_.chunks().chunk_count();
  reply.logical_bytes = state_.commits().logical_bytes();
  reply.stored_bytes = state_.chunks().stored_bytes();
  const Walked& walked = walk();
  reply.drain_pending_files = walked.drain.pending_files;
  reply.drain_pending_bytes = walked.drain.pending_bytes;
  reply.drain_failed_files = walked.drain.failed_files;
  reply.session_count = to_.sessions.all().size();
  reply.client_count = to_.clients.size();
  for (const auto& [id, client] : to_.clients) reply.reader_count += client.reader_count;
  reply.requests_served = to_.requests_served();
  reply.epoch = state_.epoch();
  reply.pid = ::getpid();
  const CopyPlanner::Figures copies = to_.copies.figures();
  reply.debt_chunks = copies.debt_chunks;
  reply.debt_bytes = copies.debt_bytes;
  reply.lost_chunks = copies.lost_chunks;
  reply.copies_made = copies.copies_made;
  reply.copied_bytes = copies.copied_bytes;
  reply.stripes = state_.stripes().size();
  reply.parity_bytes = walked.parity_bytes;
  reply.rebuilt_chunks = copies.rebuilt;
  reply.scrub = scrub_figures();
  reply.log_copies = to_.logs.count();
  reply.log_copies_wanted = limits::kLogCopies;
  const LogReplicas::Figures logs = to_.logs.figures();
  reply.log_bytes = logs.log_bytes;
  reply.log_bytes_needed = logs.needed_bytes;
  reply.log_bytes_max = logs.room_bytes;
  reply.log_full = logs.full;
  reply.standby_quorum = logs.quorum;
  reply.standby_reached = logs.reached;
  reply.log_advice = to_.logs.advice();
  reply.standby = pool_.config().standby;
  reply.standby_follows = to_.admissions.has_live_standby();
  reply.totals = to_.totals.all();
  return reply;
}

void AdminService::serve(ClientRecord&, const msg::StatPool&, const Call& call) {
  call.answer(statistics());
}

void AdminService::serve(ClientRecord&, const msg::DrainNow& request, const Call& call) {
  if (state_.file(request.below) == nullptr) return call.fail(Code::kNotFound, "drain");
  to_.sets.run();  // a client that sees nothing pending must find the links to drained sets, too
  to_.drain.prioritise_below(request.below);
  call.answer(to_.drain.pending(request.below));
}

msg::Scrub::Reply AdminService::scrub_figures() const {
  msg::Scrub::Reply out = to_.scrubber.figures();
  out.repaired_chunks = to_.copies.repaired();
  return out;
}

}  // namespace stdchk::manager
