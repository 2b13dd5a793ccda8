#include "tests/sim/rotten_copies.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/limits.h"
#include "manager/arenas/scrubber.h"
#include "manager/journal/metadata_log.h"
#include "manager/pool/membership.h"
#include "tests/sim/checkers.h"

namespace stdchk::sim {

using namespace std::chrono_literals;

namespace {

/// Longer than a take-over: within this time a cut-off manager may still answer from its old map.
constexpr Duration kForgotten = 60s;

bool is_whole(const benefactor::MetadataLog& log) {
  const auto* const first = reinterpret_cast<const char*>(log.content().data());
  const manager::LogKeys keys(manager::Membership::trusting_all().log_key());
  return manager::decode_log({first, log.content().size()}, &keys).has_value();
}

}  // namespace

/// Whether the copy is unchanged and its benefactor lives.
bool RottenCopies::is_good(const Extent& copy) const {
  return !contains(copy) && std::ranges::any_of(cluster_.benefactors(), [&](const auto& each) {
    return each.service->id() == copy.benefactor;
  });
}

/// Whether every block of the chunk's stripe has a good copy.
bool RottenCopies::can_be_made(manager::ChunkIndex index) const {
  const manager::State& state = cluster_.manager()->state();
  const manager::Stripe* const stripe = state.stripes().of(index);
  return stripe != nullptr && std::ranges::all_of(stripe->members, [&](manager::ChunkIndex member) {
           const auto copies = state.chunks().get(member).copies;
           return std::ranges::any_of(copies, [&](const Extent& copy) {
             return is_good(copy) && cluster_.manager()->pool().is_readable(copy);
           });
         });
}

/// The metadata logs that the present manager has written.
std::vector<const benefactor::MetadataLog*> RottenCopies::logs() const {
  std::vector<const benefactor::MetadataLog*> found;
  for (const auto& each : cluster_.benefactors()) {
    const benefactor::MetadataLog& log = each.service->metadata_log();
    const bool is_its = log.epoch() == cluster_.manager()->state().epoch();
    if (is_its && log.sequence() > 0) found.push_back(&log);
  }
  return found;
}

bool RottenCopies::logs_do() const {
  std::uint64_t whole = 0;
  std::uint64_t rotten = 0;
  for (const auto* log : logs()) {
    std::uint64_t& newest = is_whole(*log) ? whole : rotten;
    newest = std::max(newest, log->sequence());
  }
  return rotten <= whole;
}

bool RottenCopies::flip_log() {
  const auto all = logs();
  if (all.size() < 2) return false;
  if (!std::ranges::all_of(all, [](const auto* log) { return is_whole(*log); })) return false;
  const ByteSpan bytes = all[prng_.below(all.size())]->content();
  // Corrupts the log behind its owner's back, as rot does.
  auto& byte = const_cast<std::byte&>(bytes[prng_.below(bytes.size())]);
  byte ^= static_cast<std::byte>(1U << prng_.below(8));
  return true;
}

bool RottenCopies::flip() {
  if (prng_.chance(1, 4) && flip_log()) return true;
  const manager::ChunkTable& chunks = cluster_.manager()->state().chunks();
  std::vector<std::pair<Extent, std::uint32_t>> choice;
  chunks.for_each([&](manager::ChunkIndex index) {
    const Chunk chunk = chunks.get(index);
    std::vector<Extent> good;
    for (const Extent& copy : chunk.copies) {
      if (is_good(copy)) good.push_back(copy);
    }
    if (good.size() > 1 || (good.size() == 1 && can_be_made(index))) {
      choice.emplace_back(good[prng_.below(good.size())], chunk.length);
    }
  });
  if (choice.empty()) return false;
  const auto [extent, length] = choice[prng_.below(choice.size())];
  for (const auto& each : cluster_.benefactors()) {
    if (each.service->id() != extent.benefactor) continue;
    const std::uint64_t at = extent.offset + prng_.below(limits::kExtentHeaderBytes + length);
    each.arena->bytes()[at] ^= static_cast<std::byte>(1U << prng_.below(8));
  }
  rotten_.insert(extent);
  named_[extent] = cluster_.now();
  return true;
}

void RottenCopies::forget_mended() {
  if (rotten_.empty() || cluster_.manager() == nullptr) return;
  last_ = cluster_.now();
  for (const manager::Claim& claim : cluster_.manager()->planners().claims.all()) {
    if (claim.kind != manager::ClaimKind::kUsed && claim.kind != manager::ClaimKind::kFreeing) {
      continue;
    }
    const Extent extent{claim.benefactor, claim.range.offset};
    if (rotten_.contains(extent)) named_[extent] = last_;
  }
  std::erase_if(rotten_, [&](const Extent& extent) {
    if (last_ - named_[extent] <= kForgotten) return false;
    named_.erase(extent);
    return true;
  });
}

std::vector<std::string> RottenCopies::scrub() {
  std::vector<std::string> wrong;
  manager::Service& service = *cluster_.manager();
  const std::uint64_t passes = service.planners().scrubber.figures().passes;
  const auto done = [&] {
    service.planners().scrubber.start();
    return service.planners().scrubber.figures().passes >= passes + 2;
  };
  if (!cluster_.run_until(done, 300s)) wrong.emplace_back("M9: the scrub does not end");
  cluster_.run_for(20s);
  rotten_.clear();
  named_.clear();
  const manager::ChunkTable& chunks = service.state().chunks();
  chunks.for_each([&](manager::ChunkIndex index) {
    for (const Extent& copy : chunks.get(index).copies) {
      if (!service.pool().is_readable(copy)) rotten_.insert(copy);
    }
  });
  // Every copy that the manager does not know as corrupt must be right.
  for (std::string& each : check_committed(cluster_, rotten_)) wrong.push_back(std::move(each));
  return wrong;
}

}  // namespace stdchk::sim
