#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/messages/messages.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

class Service;
struct Stripe;

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

/// An Audit walks over all of the manager's metadata. It recounts every counter, checks that every
/// reference finds its target, and that every byte of every arena is claimed exactly once.
///
/// Threads: the reactor's. Limits: the time is proportional to all metadata.
class Audit {
 public:
  explicit Audit(const Service& service);

  /// Sentences, each of which describes a broken rule.
  const std::vector<std::string>& broken() const { return broken_; }
  /// Ranges of arenas that nothing claims.
  const std::vector<msg::CollectGarbage::Range>& leaked() const { return leaked_; }
  std::uint64_t bytes_of(ClaimKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }
  msg::CheckMetadata::Reply reply() const;
  msg::CollectGarbage::Reply garbage() const;

 private:
  void check_files();
  void check_chunks();
  void check_stripe(const Stripe& stripe);
  void check_space();

  const Service& service_;
  std::vector<std::string> broken_;
  std::vector<msg::CollectGarbage::Range> leaked_;
  std::uint64_t bytes_[kClaimKinds] = {};
  std::uint64_t files_ = 0;
  std::uint64_t references_ = 0;
};

}  // namespace stdchk::manager
