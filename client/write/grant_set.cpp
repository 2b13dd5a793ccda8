#include "client/write/grant_set.h"

#include <algorithm>

namespace stdchk::client {
namespace {

bool covers(const Grant& grant, const Extent& extent) {
  return extent.offset >= grant.offset && extent.offset < grant.offset + grant.length;
}

}  // namespace

GrantSet::Target& GrantSet::target(const Grant& grant) {
  const BenefactorId first = grant.first ? grant.first : grant.benefactor;
  for (Target& target : targets_) {
    if (target.benefactor == grant.benefactor && target.first == first) return target;
  }
  targets_.push_back(Target{grant.benefactor, first, {}, {}});
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
    Target& to = target(grant);
    insert(to, Free{grant.offset, grant.length, grant.id});
    to.grants.push_back(Held{grant, false});
    domains_[grant.benefactor] = grant.domain;
    granted_bytes_ += grant.length;
    free_bytes_ += grant.length;
  }
}

std::optional<Extent> GrantSet::carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid) {
  for (std::size_t tried = 0; tried < targets_.size(); ++tried) {
    Target& target = targets_[next_ % targets_.size()];
    next_ = (next_ + 1) % targets_.size();
    if (fits(target, bytes, avoid)) return take(target, bytes);
  }
  return std::nullopt;
}

std::vector<Extent> GrantSet::carve(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                                    std::size_t count, const std::vector<Extent>& held) {
  std::vector<Extent> carved;
  const Places places = find(bytes, avoid, count, held);
  for (const std::size_t at : places.targets) carved.push_back(take(targets_[at], bytes));
  next_ = places.next;
  if (!carved.empty() || !held.empty()) return carved;
  // No set has space on its first benefactor. Use the rest of the other grants for one place.
  if (const auto one = carve(bytes, avoid)) carved.push_back(*one);
  return carved;
}

bool GrantSet::has_places(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                          std::size_t count, const std::vector<Extent>& held) const {
  return find(bytes, avoid, count, held).targets.size() == count;
}

bool GrantSet::fits(const Target& target, std::uint64_t bytes,
                    const std::set<BenefactorId>& avoid) const {
  return !avoid.contains(target.benefactor) &&
         std::ranges::any_of(target.free,
                             [bytes](const Free& free) { return free.length >= bytes; });
}

/// Finds the set of targets with the most places. Takes equal sets in turn.
GrantSet::Places GrantSet::find(std::uint64_t bytes, const std::set<BenefactorId>& avoid,
                                std::size_t count, const std::vector<Extent>& held) const {
  if (!held.empty()) {
    return {find_beside(held.front().benefactor, bytes, avoid, count, held), next_};
  }
  Places best{{}, next_};
  for (std::size_t i = 0; i < targets_.size() && best.targets.size() < count; ++i) {
    const std::size_t at = (next_ + i) % targets_.size();
    const Target& start = targets_[at];
    if (start.benefactor != start.first || !fits(start, bytes, avoid)) continue;
    std::vector<std::size_t> found =
        find_beside(start.first, bytes, avoid, count - 1, {{start.benefactor, 0}});
    found.insert(found.begin(), at);
    if (found.size() > best.targets.size()) best = {std::move(found), (at + 1) % targets_.size()};
  }
  return best;
}

/// Returns up to `count` targets that go with `first`, in failure domains that `held` does not use.
std::vector<std::size_t> GrantSet::find_beside(BenefactorId first, std::uint64_t bytes,
                                               const std::set<BenefactorId>& avoid,
                                               std::size_t count,
                                               const std::vector<Extent>& held) const {
  std::set<std::uint64_t> taken;
  for (const Extent& extent : held) {
    if (const auto at = domains_.find(extent.benefactor); at != domains_.end()) {
      taken.insert(at->second);
    }
  }
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < targets_.size() && found.size() < count; ++i) {
    const std::size_t at = (next_ + i) % targets_.size();
    const Target& target = targets_[at];
    if (target.first != first || target.benefactor == first) continue;
    if (!fits(target, bytes, avoid)) continue;
    if (taken.insert(domains_.at(target.benefactor)).second) found.push_back(at);
  }
  return found;
}

Extent GrantSet::take(Target& target, std::uint64_t bytes) {
  const auto fit =
      std::ranges::find_if(target.free, [bytes](const Free& free) { return free.length >= bytes; });
  const Extent extent{target.benefactor, fit->offset};
  for (Held& held : target.grants) held.used |= held.grant.id == fit->grant;
  fit->offset += bytes;
  fit->length -= bytes;
  if (fit->length == 0) target.free.erase(fit);
  free_bytes_ -= bytes;
  return extent;
}

std::optional<Grant> GrantSet::grant_of(const Extent& extent) const {
  for (const Target& from : targets_) {
    if (from.benefactor != extent.benefactor) continue;
    // The newest first: the client carves from it most often.
    for (auto held = from.grants.rbegin(); held != from.grants.rend(); ++held) {
      if (covers(held->grant, extent)) return held->grant;
    }
  }
  return std::nullopt;
}

void GrantSet::give_back(const Extent& extent, std::uint64_t bytes) {
  for (Target& to : targets_) {
    if (to.benefactor != extent.benefactor) continue;
    for (const Held& held : to.grants) {
      if (!covers(held.grant, extent)) continue;
      insert(to, Free{extent.offset, bytes, held.grant.id});
      free_bytes_ += bytes;
      return;
    }
  }
  // The benefactor was dropped meanwhile, so its space must not be carved again.
}

std::vector<GrantId> GrantSet::drop(BenefactorId benefactor) {
  std::vector<GrantId> unused;
  for (const Target& target : targets_) {
    if (target.benefactor != benefactor) continue;
    for (const Held& held : target.grants) {
      if (held.used) continue;
      unused.push_back(held.grant.id);
      granted_bytes_ -= held.grant.length;
    }
    for (const Free& free : target.free) free_bytes_ -= free.length;
  }
  std::erase_if(targets_, [&](const Target& target) { return target.benefactor == benefactor; });
  return unused;
}

std::vector<GrantId> GrantSet::drop_unused() {
  std::vector<GrantId> unused;
  for (Target& target : targets_) {
    for (const Held& held : target.grants) {
      if (held.used) continue;
      unused.push_back(held.grant.id);
      granted_bytes_ -= held.grant.length;
      free_bytes_ -= held.grant.length;
      std::erase_if(target.free, [&](const Free& free) { return free.grant == held.grant.id; });
    }
    std::erase_if(target.grants, [](const Held& held) { return !held.used; });
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
