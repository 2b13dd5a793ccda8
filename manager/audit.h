#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/messages/messages.h"
#include "manager/free_space.h"

namespace stdchk::manager {

class Service;
struct Stripe;

/// What a range of an arena is for.
enum class ClaimKind : std::uint8_t {
  kFree,
  kGranted,      ///< to an open session, and not used by a committed map
  kQuarantined,  ///< until a client is fenced
  kUsed,         ///< by a chunk
  kReserved,     ///< a planner has it copied to
  kFreeing,      ///< free when the journal has the command that freed it
};
inline constexpr std::size_t kClaimKinds = 6;
struct Claim {
  BenefactorId benefactor;
  Range range;
  ClaimKind kind = ClaimKind::kFree;
};

/// An Audit is a walk over all of the manager's metadata: everything that is counted is counted
/// again, everything that refers to something must find it, and every byte of every arena is
/// claimed once.
///
/// Threads: the reactor's; it takes time in proportion to everything that there is.
class Audit {
 public:
  explicit Audit(const Service& service);

  /// A sentence for each broken rule.
  const std::vector<std::string>& broken() const { return broken_; }
  /// Ranges that nothing claims.
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
