#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "manager/state/chunk_table.h"

namespace stdchk::manager {

/// Identifies a stripe as long as it exists. Not kept across restarts.
using StripeIndex = std::uint32_t;

/// A Stripe is a list of chunks that protect each other: data chunks, then the parity blocks made
/// from them (core/chunk/erasure.h). Chunks shorter than the longest count as padded with zeros.
/// Parity blocks are chunks without names.
struct Stripe {
  std::uint32_t data = 0;           ///< how many of `members`, from the front, are data chunks
  std::vector<ChunkIndex> members;  ///< indexed by block number
  std::uint32_t parity() const { return static_cast<std::uint32_t>(members.size()) - data; }
  std::size_t number_of(ChunkIndex chunk) const;
};

/// A StripeTable maps chunks to stripes. No chunk belongs to two stripes.
///
/// Threads: one. Not: it does not count references to the chunks; State does.
class StripeTable {
 public:
  StripeIndex add(Stripe stripe);
  /// Returns the removed stripe.
  Stripe remove(StripeIndex index);
  /// Returns nullptr when the chunk is in no stripe. Valid until the next change.
  const Stripe* of(ChunkIndex chunk) const;
  StripeIndex index_of(ChunkIndex chunk) const { return stripe_of_.at(chunk); }
  std::size_t size() const { return stripes_.size(); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [index, stripe] : stripes_) visit(stripe);
  }

 private:
  std::unordered_map<StripeIndex, Stripe> stripes_;
  std::unordered_map<ChunkIndex, StripeIndex> stripe_of_;
  StripeIndex made_ = 0;
};

}  // namespace stdchk::manager
