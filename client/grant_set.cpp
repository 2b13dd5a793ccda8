#include "client/grant_set.h"

#include <algorithm>

namespace stdchk::client {

GrantSet::Target& GrantSet::target(BenefactorId benefactor) {
  for (Target& target : targets_) {
    if (target.benefactor == benefactor) return target;
  }
  targets_.push_back(Target{benefactor, {}, {}});
  return targets_.back();
}

void GrantSet::insert(Target& target, Free free) {
  auto next = std::find_if(target.free.begin(), target.free.end(),
                           [&free](const Free& other) { return other.offset > free.offset; });
  if (next != target.free.end() && next->grant == free.grant &&
      free.offset + free.length == next->offset) {
    free.length += next->length;
    next = target.free.erase(next);
  }
  if (next != target.free.begin()) {
    auto before = std::prev(next);
    if (before->grant == free.grant && before->offset + before->length == free.offset) {
      before->length += free.length;
      return;
    }
  }
  target.free.insert(next, free);
}

void GrantSet::add(const std::vector<Grant>& grants) {
  for (const Grant& grant : grants) {
    Target& to = target(grant.benefactor);
    insert(to, Free{grant.offset, grant.length, grant.id});
    to.grants.push_back(Held{grant, false});
    granted_bytes_ += grant.length;
    free_bytes_ += grant.length;
  }
}

std::optional<Extent> GrantSet::carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid) {
  for (std::size_t tried = 0; tried < targets_.size(); ++tried) {
    Target& target = targets_[next_ % targets_.size()];
    next_ = (next_ + 1) % targets_.size();
    if (avoid.contains(target.benefactor)) continue;
    auto fit = std::find_if(target.free.begin(), target.free.end(),
                            [bytes](const Free& free) { return free.length >= bytes; });
    if (fit == target.free.end()) continue;
    const Extent extent{target.benefactor, fit->offset};
    for (Held& held : target.grants) held.touched |= held.grant.id == fit->grant;
    fit->offset += bytes;
    fit->length -= bytes;
    if (fit->length == 0) target.free.erase(fit);
    free_bytes_ -= bytes;
    return extent;
  }
  return std::nullopt;
}

void GrantSet::give_back(const Extent& extent, std::uint64_t bytes) {
  Target& to = target(extent.benefactor);
  for (const Held& held : to.grants) {
    if (extent.offset < held.grant.offset ||
        extent.offset >= held.grant.offset + held.grant.length) {
      continue;
    }
    insert(to, Free{extent.offset, bytes, held.grant.id});
    free_bytes_ += bytes;
    return;
  }
  // The benefactor was dropped meanwhile: its space is not carved again.
}

std::vector<GrantId> GrantSet::drop(BenefactorId benefactor) {
  std::vector<GrantId> unused;
  for (auto it = targets_.begin(); it != targets_.end(); ++it) {
    if (it->benefactor != benefactor) continue;
    for (const Held& held : it->grants) {
      if (!held.touched) unused.push_back(held.grant.id);
    }
    for (const Free& free : it->free) free_bytes_ -= free.length;
    targets_.erase(it);
    break;
  }
  return unused;
}

std::vector<GrantId> GrantSet::drop_untouched() {
  std::vector<GrantId> unused;
  for (Target& target : targets_) {
    for (const Held& held : target.grants) {
      if (held.touched) continue;
      unused.push_back(held.grant.id);
      granted_bytes_ -= held.grant.length;
      free_bytes_ -= held.grant.length;
      std::erase_if(target.free, [&](const Free& free) { return free.grant == held.grant.id; });
    }
    std::erase_if(target.grants, [](const Held& held) { return !held.touched; });
  }
  return unused;
}

std::uint64_t GrantSet::room_for(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                                 std::uint64_t enough) const {
  std::uint64_t count = 0;
  for (const Target& target : targets_) {
    if (avoid.contains(target.benefactor)) continue;
    for (const Free& free : target.free) {
      count += free.length / bytes;
      if (count >= enough) return enough;
    }
  }
  return count;
}

}  // namespace stdchk::client
