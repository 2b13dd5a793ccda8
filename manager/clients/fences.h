#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A Fences has benefactors refuse the writes of clients that have ended. Space that such a client
/// could still write to is granted again only afterwards (rule M3).
///
/// Threads: the reactor's.
/// Errors: a benefactor that does not answer is asked again after 1 s, for as long as it takes.
class Fences {
 public:
  /// Calls `on_fenced` after each fence that a benefactor has confirmed.
  Fences(Pool& pool, const SessionTable& sessions, std::function<void()> on_fenced)
      : pool_(pool), sessions_(sessions), on_fenced_(std::move(on_fenced)) {}
  /// Has the benefactor refuse the client, and with `and_older` all clients with smaller numbers.
  void add(BenefactorId benefactor, ClientId client, bool and_older);
  void run();
  /// Returns true when clients of earlier epochs can no longer write there.
  bool is_fenced(BenefactorId benefactor) const { return fenced_.count(benefactor) > 0; }
  /// The benefactors for which is_fenced() is true.
  const std::set<BenefactorId>& fenced() const { return fenced_; }
  /// Returns true when a connected benefactor has not confirmed a fence yet.
  bool is_waiting() const;

 private:
  struct Fence {
    bool in_flight = false;
    bool and_older = false;
    Time next{};
  };
  using Key = std::pair<BenefactorId, ClientId>;
  void answered(const Key& key, const rpc::Answer& answer);

  Pool& pool_;
  const SessionTable& sessions_;
  const std::function<void()> on_fenced_;
  std::map<Key, Fence> fences_;
  std::set<BenefactorId> fenced_;
};

}  // namespace stdchk::manager
