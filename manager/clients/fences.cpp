#include "manager/clients/fences.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::manager {

namespace {

using namespace std::chrono_literals;
constexpr Duration kFenceRetry = 1s;

}  // namespace

void Fences::add(BenefactorId benefactor, ClientId client, bool and_older) {
  fences_[{benefactor, client}].and_older = and_older;
  run();
}

void Fences::run() {
  for (auto& [key, fence] : fences_) {
    const auto [benefactor, client] = key;
    rpc::Peer* peer = pool_.peer_of(benefactor);
    if (fence.in_flight || peer == nullptr || pool_.now() < fence.next) continue;
    fence.in_flight = true;
    peer->call(msg::FenceClient{client, fence.and_older}, limits::kCallDeadline,
               [this, key = key, alive = pool_.alive()](const rpc::Answer& answer) {
                 if (!alive.expired()) answered(key, answer);
               });
  }
}

void Fences::answered(const Key& key, const rpc::Answer& answer) {
  const auto found = fences_.find(key);
  if (found == fences_.end()) return;
  found->second.in_flight = false;
  found->second.next = pool_.now() + kFenceRetry;
  const auto* reply = answer ? std::get_if<msg::FenceClient::Reply>(&*answer) : nullptr;
  if (reply == nullptr || !reply->fenced) return;
  const bool all = found->second.and_older;
  fences_.erase(found);
  if (all) fenced_.insert(key.first);
  // Until then clients of earlier epochs may report chunks that they have stored there.
  if (all && pool_.now() >= sessions_.resume_until()) pool_.space().set_usable(key.first);
  pool_.space().fenced(key.first, key.second);
  on_fenced_();
}

bool Fences::is_waiting() const {
  return std::ranges::any_of(
      fences_, [&](const auto& each) { return pool_.peer_of(each.first.first) != nullptr; });
}

}  // namespace stdchk::manager
