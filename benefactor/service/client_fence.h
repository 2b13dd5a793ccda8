#pragma once

#include <cstddef>
#include <set>

#include "core/values/types.h"

namespace stdchk::benefactor {

/// A ClientFence remembers the fenced clients, which may not attach (rule M3).
///
/// Client ids grow and are never reused, so bounded memory suffices. When more than
/// `remembered_max` ids are fenced, all ids below the smallest remembered one count as fenced. That
/// may refuse an innocent client, which then registers anew and gets a larger id.
class ClientFence {
 public:
  explicit ClientFence(std::size_t remembered_max) : remembered_max_(remembered_max) {}

  bool admits(ClientId client) const {
    return client.value >= first_.value && client && !fenced_.contains(client);
  }
  void fence(ClientId client) {
    if (client.value < first_.value) return;
    fenced_.insert(client);
    while (fenced_.size() > remembered_max_) {
      first_ = ClientId{fenced_.begin()->value + 1};
      fenced_.erase(fenced_.begin());
    }
  }
  /// Fences every client below `first`: such clients belong to an earlier epoch of the manager.
  void fence_below(ClientId first) {
    if (first.value <= first_.value) return;
    first_ = first;
    fenced_.erase(fenced_.begin(), fenced_.lower_bound(first));
  }
  std::size_t remembered() const { return fenced_.size(); }

 private:
  std::size_t remembered_max_;
  ClientId first_{1};
  std::set<ClientId> fenced_;
};

}  // namespace stdchk::benefactor
