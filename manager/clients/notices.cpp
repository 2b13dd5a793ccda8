#include "manager/clients/notices.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/state/folders_of.h"

namespace stdchk::manager {

void Watchers::watch(FileId directory, ClientId client, Time now) {
  // Twice the lease: the client's own lease begins only when the answer arrives.
  directories_[directory][client] = now + 2 * limits::kCacheLease;
}

bool Watchers::is_watched(FileId directory, ClientId except, Time now) const {
  const auto watched = directories_.find(directory);
  return watched != directories_.end() &&
         std::ranges::any_of(watched->second, [&](const auto& watch) {
           return watch.first != except && watch.second >= now;
         });
}

void Watchers::forget_old(Time now) {
  for (auto directory = directories_.begin(); directory != directories_.end();) {
    std::erase_if(directory->second, [&](const auto& watch) { return watch.second < now; });
    directory = directory->second.empty() ? directories_.erase(directory) : std::next(directory);
  }
}

void Notices::unuse(FileId file, ClientId client) {
  const auto found = users_.find(file);
  if (found == users_.end()) return;
  const auto of_client = found->second.find(client);
  if (of_client != found->second.end() && --of_client->second == 0) {
    found->second.erase(of_client);
  }
  if (found->second.empty()) users_.erase(found);
}

msg::Invalidate* Notices::invalidate_of(ClientId id) {
  const auto client = clients_.find(id);
  if (client == clients_.end() || client->second.peer == nullptr) return nullptr;
  to_invalidate_.insert(id);
  if (!posted_) {
    posted_ = true;
    // A notice goes out at the end of the turn, and lists all changes of this turn.
    pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
      if (!alive.expired()) flush();
    });
  }
  return &client->second.invalidate;
}

void Notices::flush() {
  posted_ = false;
  std::set<ClientId> ids;
  ids.swap(to_invalidate_);
  for (const ClientId id : ids) {
    const auto client = clients_.find(id);
    if (client == clients_.end() || client->second.peer == nullptr) continue;
    msg::Invalidate notice;
    std::swap(notice, client->second.invalidate);
    // A notice that cannot be sent is made up for by the end of the cache's lease.
    if (!client->second.peer->notify(notice)) log::debug("a notice to client {} is lost", id.value);
  }
}

void Notices::entry_changed(FileId directory, const std::string& name, ClientId except) {
  on_folder_changed_(directory);
  watchers_.for_each(directory, pool_.now(), [&](ClientId client) {
    if (client == except) return;
    msg::Invalidate* notice = invalidate_of(client);
    if (notice != nullptr && notice->entries.size() < limits::kDirectoryPageMax) {
      notice->entries.push_back({directory, name});
    }
  });
}

void Notices::file_changed(FileId id, ClientId except) {
  const auto add_notice = [&](ClientId client) {
    if (client == except) return;
    msg::Invalidate* notice = invalidate_of(client);
    if (notice == nullptr || notice->files.size() >= limits::kMapPageSlicesMax) return;
    if (std::find(notice->files.begin(), notice->files.end(), id) == notice->files.end()) {
      notice->files.push_back(id);
    }
  };
  const File* file = pool_.state().file(id);
  const Time now = pool_.now();
  const bool is_directory = file != nullptr && file->type == FileType::kDirectory;
  if (is_directory) {
    on_folder_changed_(id);
    watchers_.for_each(id, now, add_notice);
  }
  if (file != nullptr) {
    for_each_folder(*file, [&](FileId folder) {
      if (!is_directory) on_folder_changed_(folder);
      watchers_.for_each(folder, now, add_notice);
    });
  }
  const auto users = users_.find(id);
  if (users == users_.end()) return;
  for (const auto& [client, count] : users->second) add_notice(client);
}

void Notices::file_shared(FileId file) {
  const auto users = users_.find(file);
  if (users == users_.end()) return;
  for (const auto& [client, count] : users->second) {
    msg::Invalidate* const notice = invalidate_of(client);
    // A reader without the notice goes on with the copies of the chunk map.
    if (notice == nullptr || notice->shared.size() >= limits::kListItemsMax) continue;
    notice->shared.push_back(file);
  }
}

void Notices::recall(ClientId client, FileId directory) {
  msg::Invalidate* const notice = invalidate_of(client);
  // The lease service repeats recalls that are not answered.
  if (notice == nullptr || notice->recalled.size() >= limits::kListItemsMax) return;
  notice->recalled.push_back(directory);
}

void Notices::benefactors_changed() {
  for (const auto& [id, client] : clients_) {
    msg::Invalidate* notice = invalidate_of(id);
    if (notice != nullptr) notice->benefactors_changed = true;
  }
}

}  // namespace stdchk::manager
