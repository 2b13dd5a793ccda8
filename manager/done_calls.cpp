#include "manager/done_calls.h"

#include <algorithm>

namespace stdchk::manager {

void DoneCalls::add(const Caller& caller) {
  if (!caller.client) return;
  const auto [entry, is_new] = clients_.try_emplace(caller.client);
  Calls& calls = entry->second;
  // One that was forgotten, and is heard of again: of its earlier calls nothing is known.
  if (is_new && caller.client <= forgotten_ && caller.call > 0) calls.forgotten = caller.call - 1;
  const auto at = std::ranges::lower_bound(calls.done, caller.call);
  if (at == calls.done.end() || *at != caller.call) calls.done.insert(at, caller.call);
  if (calls.done.size() > kCallsMax) {
    calls.forgotten = std::max(calls.forgotten, calls.done.front());
    calls.done.erase(calls.done.begin());
  }
  if (clients_.size() > kClientsMax) {
    forgotten_ = std::max(forgotten_, clients_.begin()->first);
    clients_.erase(clients_.begin());
  }
}

DoneCalls::Found DoneCalls::find(const Caller& caller) const {
  const auto entry = clients_.find(caller.client);
  if (entry == clients_.end()) {
    return caller.client <= forgotten_ ? Found::kForgotten : Found::kNotDone;
  }
  const Calls& calls = entry->second;
  if (std::ranges::binary_search(calls.done, caller.call)) return Found::kDone;
  return caller.call <= calls.forgotten ? Found::kForgotten : Found::kNotDone;
}

void DoneCalls::restore(const RestoreCalls& command) {
  if (command.calls.empty()) {
    forgotten_ = std::max(forgotten_, command.client);
    return;
  }
  for (const std::uint64_t call : command.calls) add({command.client, call});
  const auto entry = clients_.find(command.client);
  if (entry == clients_.end()) return;
  entry->second.forgotten = std::max(entry->second.forgotten, command.forgotten);
}

void DoneCalls::snapshot(const std::function<void(Command)>& emit) const {
  if (forgotten_) emit(RestoreCalls{forgotten_, 0, {}});
  for (const auto& [client, calls] : clients_) {
    emit(RestoreCalls{client, calls.forgotten, calls.done});
  }
}

}  // namespace stdchk::manager
