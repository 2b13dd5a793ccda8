#include "manager/drain/drain_leftovers.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/messages/messages.h"
#include "manager/drain/name_mirror.h"

namespace stdchk::manager {

void DrainLeftovers::drop_earlier(Time when) {
  const State& state = pool_.state();
  const auto& queue = state.mirror_queue();
  std::uint64_t below = queue.empty() ? state.mirror().newest() + 1 : queue.begin()->first;
  for (const auto& [sequence, id] : state.commits().undrained()) {
    const std::uint64_t aside = state.file(id)->newest.aside;
    if (aside == 0) continue;
    below = std::min(below, aside);
    add_aside(id, aside);
  }
  drop(FileId{}, ((state.epoch().value + 1) << 40) | below, when);
}

void DrainLeftovers::drop_earlier_now() {
  if (garbage_.empty() || garbage_.begin()->first.first) return;
  garbage_.begin()->second = pool_.now();
}

std::optional<DrainLeftovers::Attempt> DrainLeftovers::attempt_at(FileId file,
                                                                  Version version) const {
  const auto found = attempts_.find(file);
  if (found == attempts_.end() || found->second.version != version) return std::nullopt;
  return found->second;
}

void DrainLeftovers::continued(FileId file, std::uint64_t number) {
  const auto found = attempts_.find(file);
  if (found != attempts_.end() && found->second.number == number) attempts_.erase(found);
}

void DrainLeftovers::drop_attempts() { drop_attempts_if(true); }

void DrainLeftovers::run() {
  std::erase_if(asides_, [this](const Key& aside) {
    if (pool_.state().files().is_aside(aside.first, aside.second)) return false;
    garbage_[aside] = {};
    return true;
  });
  drop_attempts_if(false);
  drop_due();
}

/// Drops the attempts that no further attempt continues, or all attempts.
void DrainLeftovers::drop_attempts_if(bool all) {
  std::erase_if(attempts_, [&](const auto& entry) {
    const auto& [id, attempt] = entry;
    const File* file = pool_.state().file(id);
    const bool wanted = file != nullptr && file->parent && file->newest.version == attempt.version;
    if (wanted && !all) return false;
    drop(id, attempt.number, attempt.late);
    return true;
  });
}

void DrainLeftovers::drop_due() {
  for (auto& [which, when] : garbage_) {
    if (pool_.now() < when) continue;
    const auto benefactor = pool_.some_benefactor();
    if (!benefactor) return;
    msg::MirrorChange change;
    change.kind = msg::MirrorKind::kDropTemporary;
    change.file = which.first;
    change.number = which.second;
    when = pool_.now() + limits::kCallDeadline + kTransit;
    pool_.peer_of(*benefactor)
        ->call(change, limits::kCallDeadline,
               [this, alive = pool_.alive(), key = which](const rpc::Answer& answer) {
                 if (!alive.expired() && answer) garbage_.erase(key);
               });
  }
}

}  // namespace stdchk::manager
