#include "manager/state/name_leases.h"

#include <algorithm>
#include <utility>

namespace stdchk::manager {

std::uint64_t NameLeases::holder(FileId directory) const {
  const auto found = directories_.find(directory);
  return found == directories_.end() ? 0 : found->second;
}

ClientId NameLeases::client(FileId directory) const {
  const Holder* const by = find(holder(directory));
  return by == nullptr ? ClientId{} : by->client;
}

const NameLeases::Holder* NameLeases::find(std::uint64_t holder) const {
  const auto found = holders_.find(holder);
  return found == holders_.end() ? nullptr : &found->second;
}

std::uint64_t NameLeases::number_of(ClientId client) const {
  const auto found = std::ranges::find_if(
      holders_, [client](const auto& holder) { return holder.second.client == client; });
  return found == holders_.end() ? 0 : found->first;
}

void NameLeases::add_holder(std::uint64_t holder, ClientId client) {
  holders_.try_emplace(holder, Holder{client, 0, {}});
}

void NameLeases::add(FileId directory, std::uint64_t holder) {
  const auto found = holders_.find(holder);
  if (found == holders_.end() || !directories_.emplace(directory, holder).second) return;
  found->second.directories.insert(directory);
}

void NameLeases::note_batch(std::uint64_t holder, std::uint64_t number) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  found->second.newest_batch = std::max(found->second.newest_batch, number);
}

void NameLeases::end(std::uint64_t holder, FileId directory) {
  const auto found = directories_.find(directory);
  if (found == directories_.end() || found->second != holder) return;
  holders_.at(holder).directories.erase(directory);
  directories_.erase(found);
}

void NameLeases::end_all(std::uint64_t holder) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  ended_last_ = std::move(found->second.directories);
  for (const FileId directory : ended_last_) directories_.erase(directory);
  holders_.erase(found);
}

void NameLeases::snapshot(const std::function<bool(FileId)>& exists,
                          const std::function<void(Command)>& emit) const {
  for (const auto& [number, holder] : holders_) {
    emit(LeaseNames{{}, number, holder.client, holder.newest_batch});
  }
  for (const auto& [directory, number] : directories_) {
    if (exists(directory)) emit(LeaseNames{directory, number, holders_.at(number).client, 0});
  }
}

}  // namespace stdchk::manager
