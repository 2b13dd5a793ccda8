#include "manager/state/name_leases.h"

#include <algorithm>

namespace stdchk::manager {

ClientId NameLeases::holder(FileId directory) const {
  const auto found = directories_.find(directory);
  return found == directories_.end() ? ClientId{} : found->second;
}

std::uint64_t NameLeases::newest_batch(ClientId client) const {
  const auto found = newest_.find(client);
  return found == newest_.end() ? 0 : found->second;
}

void NameLeases::add(FileId directory, ClientId client) {
  directories_.emplace(directory, client);
  newest_.try_emplace(client, 0);
}

void NameLeases::note_batch(ClientId client, std::uint64_t number) {
  std::uint64_t& newest = newest_[client];
  newest = std::max(newest, number);
}

void NameLeases::end(ClientId client, FileId directory) {
  const auto found = directories_.find(directory);
  if (found != directories_.end() && found->second == client) directories_.erase(found);
}

void NameLeases::end_all(ClientId client) {
  std::erase_if(directories_, [client](const auto& lease) { return lease.second == client; });
  newest_.erase(client);
}

void NameLeases::snapshot(const std::function<bool(FileId)>& exists,
                          const std::function<void(Command)>& emit) const {
  for (const auto& [client, number] : newest_) emit(LeaseNames{{}, client, number});
  for (const auto& [directory, client] : directories_) {
    if (exists(directory)) emit(LeaseNames{directory, client, 0});
  }
}

}  // namespace stdchk::manager
