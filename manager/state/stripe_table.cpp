#include "manager/state/stripe_table.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"

namespace stdchk::manager {

std::size_t Stripe::number_of(ChunkIndex chunk) const {
  const auto found = std::find(members.begin(), members.end(), chunk);
  STDCHK_ASSERT(found != members.end());
  return static_cast<std::size_t>(found - members.begin());
}

StripeIndex StripeTable::add(Stripe stripe) {
  do {
    ++made_;
  } while (stripes_.count(made_) > 0);
  for (const ChunkIndex member : stripe.members) {
    const bool added = stripe_of_.emplace(member, made_).second;
    STDCHK_ASSERT(added);
  }
  stripes_.emplace(made_, std::move(stripe));
  return made_;
}

Stripe StripeTable::remove(StripeIndex index) {
  auto taken = stripes_.extract(index);
  STDCHK_ASSERT(!taken.empty());
  for (const ChunkIndex member : taken.mapped().members) stripe_of_.erase(member);
  return std::move(taken.mapped());
}

const Stripe* StripeTable::of(ChunkIndex chunk) const {
  const auto found = stripe_of_.find(chunk);
  return found == stripe_of_.end() ? nullptr : &stripes_.at(found->second);
}

}  // namespace stdchk::manager
