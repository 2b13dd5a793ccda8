#include "manager/sessions/lease_terms.h"

#include <algorithm>

#include "core/policy/image_name.h"
#include "manager/drain/drainable_name.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {
namespace {

/// Returns true when a rule of sets holds in the folder, or sets were drained from it.
bool has_sets(const State& state, const File& folder) {
  if (!folder.as_directory.drained_sets.empty()) return true;
  for (const File* at = &folder; at != nullptr; at = state.file(at->parent)) {
    if (at->as_directory.rules) return true;
    if (at->id == kRootFile) break;
  }
  return false;
}

/// Returns true when the client writes or reads a file with a name in the directory.
bool uses_file_in(const State& state, const ClientRecord& client, FileId directory) {
  const auto is_there = [&](const auto& used) {
    const File* const file = state.file(used.first);
    return file != nullptr && file->parent == directory;
  };
  return std::ranges::any_of(client.sessions, is_there) ||
         std::ranges::any_of(client.pins, is_there);
}

/// Returns true when a lease on the directory leaves the child's attributes to one client.
bool suits(const State& state, const ClientRecord& client, const File& child) {
  if (!child.links.empty()) return false;
  const ClientId holder = state.name_leases().client(child.id);
  return !holder || holder == client.id;
}

}  // namespace

bool may_lease(const Pool& pool, const Clients& clients, const Notices& notices,
               const ClientRecord& client, FileId directory) {
  const State& state = pool.state();
  const NameLeases& leases = state.name_leases();
  const auto found = state.directory(directory);
  if (!found || !(*found)->parent) return false;
  const File& folder = **found;
  // The client has to return what it held of an earlier manager first.
  const NameLeases::Holder* const earlier = leases.find(leases.number_of(client.before));
  if (client.before && earlier != nullptr && !earlier->directories.empty()) return false;
  const ClientId above = leases.client(folder.parent);
  if (above && above != client.id) return false;
  const Directory& names = folder.as_directory;
  if (names.children.size() > kLeasedNamesMax || !names.pending_children.empty()) return false;
  // The manager alone gives new files their access lists.
  if (has_default_list(folder)) return false;
  if (has_sets(state, folder) || notices.is_watched(directory, client.id)) return false;
  for (const auto& [id, other] : clients) {
    if (id != client.id && uses_file_in(state, other, directory)) return false;
  }
  return std::ranges::all_of(names.children, [&](const auto& child) {
    return !is_name_of_sets(child.first) && suits(state, client, *state.file(child.second));
  });
}

Status check_number(const Pool& pool, const ClientRecord& client, FileId number) {
  const bool is_earlier = number && Pool::epoch_of(ClientId{number.value}) < pool.state().epoch();
  if (!is_earlier && !client.numbers.contains(number))
    return fail(Code::kInvalidArgument, "lease: the file's number");
  if (pool.state().file(number) != nullptr) return fail(Code::kExists, "lease: the file's number");
  return {};
}

Status check_batch(const Pool& pool, const ClientRecord& client, const msg::ApplyNames& batch) {
  using Kind = msg::NameChangeKind;
  const State& state = pool.state();
  const auto check_new = [&](FileId parent, const std::string& name) -> Status {
    if (is_name_of_sets(name)) return fail(Code::kInvalidArgument, "lease: a name of sets");
    const auto folder = state.directory(parent);
    if (folder && (*folder)->as_directory.pending_children.contains(name)) {
      return fail(Code::kExists, "lease: a pending name");
    }
    return check_drainable(pool, parent, name);
  };
  for (const msg::NameChange& change : batch.changes) {
    const bool adds = change.kind == Kind::kAddFile || change.kind == Kind::kAddDirectory ||
                      change.kind == Kind::kAddSymlink;
    if (adds) STDCHK_TRY(check_number(pool, client, change.file));
    if (adds) STDCHK_TRY(check_new(change.parent, change.name));
    if (change.kind == Kind::kRename) STDCHK_TRY(check_new(change.to_parent, change.to_name));
    if (change.kind != Kind::kRemoveDirectory) continue;
    const File* const removed = state.file(change.file);
    if (removed != nullptr && !removed->as_directory.pending_children.empty()) {
      return fail(Code::kNotEmpty, "lease: a pending name");
    }
  }
  return {};
}

}  // namespace stdchk::manager
