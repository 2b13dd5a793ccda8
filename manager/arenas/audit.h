#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/messages/messages.h"
#include "manager/arenas/claims.h"
#include "manager/clients/sessions.h"
#include "manager/space/free_space.h"

namespace stdchk::manager {

struct Stripe;

/// An Audit walks over all of the manager's metadata. It recounts every counter, checks that every
/// reference finds its target, and that every byte of every arena is claimed exactly once.
///
/// Threads: the reactor's. Limits: the time is proportional to all metadata.
class Audit {
 public:
  Audit(const Pool& pool, const SessionTable& sessions, const Claims& claims);

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

  const Pool& pool_;
  const SessionTable& sessions_;
  const Claims& claims_;
  std::vector<std::string> broken_;
  std::vector<msg::CollectGarbage::Range> leaked_;
  std::uint64_t bytes_[kClaimKinds] = {};
  std::uint64_t files_ = 0;
  std::uint64_t references_ = 0;
};

}  // namespace stdchk::manager
