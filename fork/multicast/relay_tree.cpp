#include "fork/multicast/relay_tree.h"

#include <algorithm>

namespace stdchk::multicast {

ReceiverId RelayTree::place(Time now, ReceiverId id, const Kind& kind, ReceiverId avoid) {
  forget_silent(now);
  if (id == 0) return 0;
  if (members_.count(id) == 0) {
    if (members_.size() >= kMembersMax) return 0;
    order_.push_back(id);
  }
  Member& member = members_[id];
  member.kind = kind;
  member.heard = now;
  if (!kind.by_unicast) {
    member.is_placed = false;
    return 0;
  }
  if (avoid != 0 && member.avoided.size() < kMembersMax) member.avoided.insert(avoid);
  const bool is_served = member.relay == 0 || (members_.count(member.relay) > 0 &&
                                               member.avoided.count(member.relay) == 0);
  if (member.is_placed && is_served) return member.relay;
  member.is_placed = false;
  member.relay = choose(id, member);
  member.is_placed = true;
  return member.relay;
}

void RelayTree::heard(Time now, ReceiverId id, bool done) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  found->second.heard = now;
  found->second.done = found->second.done || done;
}

bool RelayTree::hears(Time now, ReceiverId id) const {
  const auto found = members_.find(id);
  return found != members_.end() && now - found->second.heard <= kSilence;
}

/// Early members relay first, so the tree stays flat.
ReceiverId RelayTree::choose(ReceiverId id, const Member& member) const {
  if (children(0) < kFanOut) return 0;
  for (const ReceiverId each : order_) {
    const Member& relay = members_.at(each);
    // A member that has everything may end soon.
    if (!relay.kind.relays || relay.done || member.avoided.count(each) > 0) continue;
    if (relay.kind.by_unicast && !relay.is_placed) continue;
    if (children(each) < kFanOut && !is_below(each, id)) return each;
  }
  return 0;
}

std::size_t RelayTree::children(ReceiverId relay) const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(), [relay](const auto& each) {
        return each.second.is_placed && each.second.relay == relay && !each.second.done;
      }));
}

bool RelayTree::is_below(ReceiverId id, ReceiverId above) const {
  for (std::size_t steps = 0; steps <= members_.size(); ++steps) {
    if (id == above) return true;
    const auto found = members_.find(id);
    if (found == members_.end() || !found->second.is_placed || found->second.relay == 0) break;
    id = found->second.relay;
  }
  return false;
}

void RelayTree::forget_silent(Time now) {
  std::erase_if(members_, [&](const auto& each) { return now - each.second.heard > kSilence; });
  std::erase_if(order_, [&](ReceiverId id) { return members_.count(id) == 0; });
}

}  // namespace stdchk::multicast
