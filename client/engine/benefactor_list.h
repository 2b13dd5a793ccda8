#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/messages/messages.h"

namespace stdchk::client {

/// A BenefactorList is what the manager's last list says of the benefactors.
///
/// Threads: one at a time (the engine's lock).
class BenefactorList {
 public:
  /// Takes the manager's list. Returns the benefactors of the old list that the new list lacks.
  std::vector<BenefactorId> update(const std::vector<msg::BenefactorInfo>& benefactors) {
    std::set<BenefactorId> listed;
    alive_.clear();
    arena_bytes_total_ = 0;
    for (const msg::BenefactorInfo& info : benefactors) {
      if (info.state == msg::BenefactorState::kGone) continue;
      listed.insert(info.id);
      if (info.state == msg::BenefactorState::kAlive) alive_.insert(info.id);
      arena_bytes_total_ += info.arena_bytes;
    }
    std::vector<BenefactorId> gone;
    for (const BenefactorId known : listed_) {
      if (!listed.contains(known)) gone.push_back(known);
    }
    listed_ = std::move(listed);
    return gone;
  }
  bool is_alive(BenefactorId benefactor) const { return alive_.contains(benefactor); }
  std::uint64_t arena_bytes_total() const { return arena_bytes_total_; }

 private:
  std::set<BenefactorId> listed_;
  std::set<BenefactorId> alive_;
  std::uint64_t arena_bytes_total_ = 0;
};

}  // namespace stdchk::client
