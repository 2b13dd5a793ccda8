#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "manager/chunk_table.h"

namespace stdchk::manager {

/// A number for a stripe that is valid while the stripe is there. Not kept across restarts.
using StripeIndex = std::uint32_t;

/// A Stripe is chunks that protect each other: data, then parity that was made from it (
/// core/erasure.h). Shorter chunks count as if zeros followed. Parity blocks are chunks without
/// names.
struct Stripe {
  std::uint32_t data = 0;           ///< of `members`, the first ones
  std::vector<ChunkIndex> members;  ///< each block by its number
  std::uint32_t parity() const { return static_cast<std::uint32_t>(members.size()) - data; }
  std::size_t number_of(ChunkIndex chunk) const;
};

/// A StripeTable knows which chunks are in which stripe; a chunk is in one at most.
///
/// Threads: one. Not: references to the chunks, which State counts.
class StripeTable {
 public:
  StripeIndex add(Stripe stripe);
  /// Answers what it was.
  Stripe remove(StripeIndex index);
  /// nullptr: the chunk is in none. Good until the next change.
  const Stripe* of(ChunkIndex chunk) const;
  StripeIndex index_of(ChunkIndex chunk) const { return of_.at(chunk); }
  std::size_t size() const { return stripes_.size(); }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [index, stripe] : stripes_) visit(stripe);
  }

 private:
  std::unordered_map<StripeIndex, Stripe> stripes_;
  std::unordered_map<ChunkIndex, StripeIndex> of_;
  StripeIndex made_ = 0;
};

}  // namespace stdchk::manager
