#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/values/types.h"
#include "manager/pool/pool.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

/// The use of a range of an arena.
enum class ClaimKind : std::uint8_t {
  kFree,
  kGranted,      ///< to an open session; no committed map uses it
  kQuarantined,  ///< until a client is fenced
  kUsed,         ///< by a chunk
  kReserved,     ///< the target of a copy that a planner has ordered
  kFreeing,      ///< becomes free when the command that freed it is durable in the journal
};
inline constexpr std::size_t kClaimKinds = 6;
struct Claim {
  BenefactorId benefactor;
  Range range;
  ClaimKind kind = ClaimKind::kFree;
};

/// A Claims lists who uses which range of which arena. The pool knows most of it; sessions and
/// planners add the ranges that they hold.
///
/// Threads: the reactor's.
class Claims {
 public:
  using Visit = std::function<void(BenefactorId benefactor, Range range)>;
  /// Calls its argument for each range that a holder has now.
  using Holder = std::function<void(const Visit& visit)>;

  explicit Claims(const Pool& pool) : pool_(pool) {}
  /// From now on the holder's ranges count as claims of that kind.
  void add_holder(ClaimKind kind, Holder holder) { holders_.emplace_back(kind, std::move(holder)); }
  /// The claims on all ranges of all arenas.
  std::vector<Claim> all() const;
  /// Lists claims as all() does, but leaves out those of chunks: chunks have most claims.
  std::vector<Claim> all_but_chunks() const;

 private:
  const Pool& pool_;
  std::vector<std::pair<ClaimKind, Holder>> holders_;
};

}  // namespace stdchk::manager
