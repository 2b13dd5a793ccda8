#include "manager/state/completion_records.h"

#include <algorithm>

namespace stdchk::manager {

void CompletionRecords::add(const Caller& caller) {
  if (!caller.client) return;
  const auto [entry, is_new] = clients_.try_emplace(caller.client);
  Calls& calls = entry->second;
  if (is_new && caller.client <= forgotten_client_) calls.forgotten = forgotten_call_;
  calls.used = ++used_;
  const auto at = std::ranges::lower_bound(calls.done, caller.call);
  if (at == calls.done.end() || *at != caller.call) calls.done.insert(at, caller.call);
  if (calls.done.size() > kCallsMax) {
    calls.forgotten = std::max(calls.forgotten, calls.done.front());
    calls.done.erase(calls.done.begin());
  }
  if (clients_.size() > kClientsMax) forget_one();
}

/// Evicts the client whose last change is the oldest.
void CompletionRecords::forget_one() {
  const auto oldest =
      std::ranges::min_element(clients_, {}, [](const auto& client) { return client.second.used; });
  const Calls& calls = oldest->second;
  forgotten_client_ = std::max(forgotten_client_, oldest->first);
  forgotten_call_ = std::max({forgotten_call_, calls.forgotten, calls.done.back()});
  clients_.erase(oldest);
}

CompletionRecords::Found CompletionRecords::find(const Caller& caller) const {
  const auto entry = clients_.find(caller.client);
  if (entry == clients_.end()) {
    const bool forgotten = caller.client <= forgotten_client_ && caller.call <= forgotten_call_;
    return forgotten ? Found::kForgotten : Found::kNotDone;
  }
  const Calls& calls = entry->second;
  if (std::ranges::binary_search(calls.done, caller.call)) return Found::kDone;
  return caller.call <= calls.forgotten ? Found::kForgotten : Found::kNotDone;
}

void CompletionRecords::restore(const RestoreCalls& command) {
  if (command.calls.empty()) {
    forgotten_client_ = std::max(forgotten_client_, command.client);
    forgotten_call_ = std::max(forgotten_call_, command.forgotten);
    return;
  }
  for (const std::uint64_t call : command.calls) add({command.client, call});
  const auto entry = clients_.find(command.client);
  if (entry == clients_.end()) return;
  entry->second.forgotten = std::max(entry->second.forgotten, command.forgotten);
}

void CompletionRecords::snapshot(const std::function<void(Command)>& emit) const {
  std::map<std::uint64_t, ClientId> order;
  for (const auto& [client, calls] : clients_) order.emplace(calls.used, client);
  for (const auto& [used, client] : order) {
    const Calls& calls = clients_.at(client);
    emit(RestoreCalls{client, calls.forgotten, calls.done});
  }
  if (forgotten_client_) emit(RestoreCalls{forgotten_client_, forgotten_call_, {}});
}

}  // namespace stdchk::manager
