#include "manager/arenas/extent_checks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kBatchItems = 1024;
// Small enough to be checked well within a call's deadline.
constexpr std::uint64_t kBatchBytes = limits::kGiB;

}  // namespace

void ExtentChecks::start(Extents extents, Time deadline, Done done) {
  std::erase_if(extents, [](const auto& each) { return each.second.empty(); });
  checks_[++made_] = {std::move(extents), {}, deadline, std::move(done)};
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (!alive.expired()) run();
  });
}

void ExtentChecks::run() {
  std::vector<std::uint64_t> ended;
  for (auto& [number, check] : checks_) {
    if (has_ended(check)) {
      ended.push_back(number);
    } else {
      send(number, check);
    }
  }
  for (const std::uint64_t number : ended) {
    const auto check = checks_.extract(number);
    if (!check.empty()) check.mapped().done(check.mapped().missing);
  }
}

bool ExtentChecks::has_ended(Check& check) const {
  const bool late = pool_.now() >= check.deadline;
  bool all = true;
  for (const auto& [benefactor, extents] : check.extents) {
    // Extents that were checked before their benefactor left count as missing, too.
    const bool gone = pool_.is_presumed_lost(benefactor);
    if (extents.empty() && !gone) continue;
    if (!gone && !late) {
      all = false;
      continue;
    }
    check.missing.benefactors.insert(benefactor);
    if (gone || !check.missing.why) {
      check.missing.why = Error{gone ? Code::kDataLost : Code::kDeadline, 0, "manager.check"};
    }
  }
  return all;
}

void ExtentChecks::send(std::uint64_t number, Check& check) {
  for (const auto& [benefactor, extents] : check.extents) {
    rpc::Peer* const peer = pool_.peer_of(benefactor);
    std::size_t& in_flight = check.in_flight[benefactor];
    if (extents.empty() || peer == nullptr || in_flight > 0) continue;
    if (!fences_.is_fenced(benefactor)) continue;
    msg::CheckExtents request;
    std::uint64_t bytes = 0;
    for (const auto& extent : extents) {
      if (request.extents.size() == kBatchItems || bytes >= kBatchBytes) break;
      request.extents.push_back(extent);
      bytes += extent.length;
    }
    in_flight = request.extents.size();
    peer->call(std::move(request), limits::kCallDeadline,
               [this, number, id = benefactor, alive = pool_.alive()](const rpc::Answer& answer) {
                 if (!alive.expired()) answered(number, id, answer);
               });
  }
}

void ExtentChecks::answered(std::uint64_t number, BenefactorId benefactor,
                            const rpc::Answer& answer) {
  const auto found = checks_.find(number);
  if (found == checks_.end()) return;
  Check& check = found->second;
  const std::size_t looked_at = std::exchange(check.in_flight[benefactor], 0);
  const auto* reply = answer ? std::get_if<msg::CheckExtents::Reply>(&*answer) : nullptr;
  if (reply == nullptr) return;  // asked again in the next turn
  auto& extents = check.extents.at(benefactor);
  for (const std::uint32_t index : reply->corrupt) {
    if (index >= looked_at) continue;
    check.missing.extents.insert({benefactor, extents[index].offset});
    check.missing.why = Error{Code::kDataLost, 0, "manager.check"};
  }
  extents.erase(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(looked_at));
  run();
}

}  // namespace stdchk::manager
