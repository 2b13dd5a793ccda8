#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "core/messages/messages.h"
#include "core/policy/access_list.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// A TouchedDirectories lists the directories that a request is about, for leases on directories.
/// A request about a file touches all directories with a name of the file.
///
/// Threads: one.
class TouchedDirectories {
 public:
  explicit TouchedDirectories(const State& state) : state_(state) {}

  /// Adds the directory, and the directories of the file with that name.
  void entry(FileId parent, std::string_view name);
  void file(FileId id);
  /// Adds the directory, and the leased directories in it, whose attributes a listing shows.
  void listing(FileId directory);
  /// Adds `directory` and the directories below it, if they are leased.
  void below(FileId directory);
  /// Adds the entry, and the leased directories below it, whose paths a rename changes.
  void moved(FileId parent, std::string_view name);
  /// Notes that the request changes names outside of a batch: the holder must not do that.
  void note_change() { changes_names_ = true; }

  const std::vector<FileId>& directories() const { return directories_; }
  bool changes_names() const { return changes_names_; }

 private:
  void add(FileId directory);

  const State& state_;
  std::vector<FileId> directories_;
  bool changes_names_ = false;
};

template <class M, class... Of>
inline constexpr bool kIsOneOf = (std::is_same_v<M, Of> || ...);

/// Returns what the request of a client touches. Requests of sessions touch nothing: the open of
/// the session has touched the file.
template <class M>
TouchedDirectories touched_by(const State& state, const M& request) {
  TouchedDirectories out(state);
  if constexpr (kIsOneOf<M, msg::GetAttributes, msg::SetAttributes, msg::GetXattrs, msg::SetXattr,
                         msg::ReadSymlink, msg::GetPolicy, msg::GetMap, msg::SetLock, msg::GetLock,
                         msg::MakeLink, msg::OpenSession, msg::ResumeSession>) {
    out.file(request.file);
  }
  if constexpr (kIsOneOf<M, msg::Lookup, msg::MakeDirectory, msg::MakeSymlink, msg::MakeNode,
                         msg::MakeLink, msg::Remove, msg::OpenSession, msg::ResumeSession>) {
    if (request.parent) out.entry(request.parent, request.name);
  }
  if constexpr (kIsOneOf<M, msg::ReadDirectory, msg::ListSets, msg::SetPolicy>) {
    out.listing(request.directory);
  }
  if constexpr (kIsOneOf<M, msg::MakeDirectory, msg::MakeSymlink, msg::MakeNode, msg::MakeLink,
                         msg::Remove, msg::Rename>) {
    out.note_change();
  }
  if constexpr (std::is_same_v<M, msg::Rename>) {
    out.moved(request.from_parent, request.from_name);
    out.moved(request.to_parent, request.to_name);
  }
  if constexpr (std::is_same_v<M, msg::SetXattr>) {
    // A rule of sets lets the manager itself change names in the directories below.
    if (request.name.starts_with("user.stdchk.")) {
      out.below(request.file);
      out.note_change();
    }
    // Access lists change modes, and what a directory's new files get.
    if (is_access_list(request.name)) out.note_change();
  }
  if constexpr (std::is_same_v<M, msg::OpenSession>) {
    if (request.parent && !request.number && !request.unnamed) out.note_change();
  }
  return out;
}

}  // namespace stdchk::manager
