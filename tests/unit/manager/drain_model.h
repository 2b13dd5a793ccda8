#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/files/drain_manifest.h"
#include "core/messages/messages.h"
#include "core/values/types.h"
#include "tests/unit/manager/world.h"

namespace stdchk::manager::test {

/// A DrainModel is the drain directory that a benefactor's requests make: the length of each file,
/// and the target of each symbolic link.
class DrainModel {
 public:
  struct Entry {
    std::uint64_t bytes = 0;
    std::string target;
  };
  using Entries = std::map<std::string, Entry>;

  void take(const msg::Request& request) {
    if (const auto* finish = std::get_if<msg::DrainFinish>(&request)) {
      entries_.erase(temporary(finish->file, finish->number));
      entries_[finish->path] = {finish->size_bytes, {}};
    } else if (const auto* change = std::get_if<msg::MirrorChange>(&request)) {
      take_change(*change);
    }
  }
  const Entries& entries() const { return entries_; }
  std::optional<std::uint64_t> bytes(const std::string& path) const {
    const auto found = entries_.find(path);
    return found == entries_.end() ? std::nullopt : std::optional(found->second.bytes);
  }

 private:
  static std::string temporary(FileId file, std::uint64_t number) {
    return std::string(msg::kTemporaryFolder) + "/" + msg::temporary_name(file, number);
  }
  void take_change(const msg::MirrorChange& change) {
    if (change.path == kPolicyLinkName) return;
    const std::string number = temporary(change.file, change.number);
    const std::string from = change.path.empty() ? number : change.path;
    const std::string to = change.other_path.empty() ? number : change.other_path;
    switch (change.kind) {
      case msg::MirrorKind::kRename:
        return move(from, to);
      case msg::MirrorKind::kSetAside:
        if (entries_.contains(from)) entries_[number] = entries_[from];
        return;
      case msg::MirrorKind::kLink:
        if (entries_.contains(from)) entries_[to] = entries_[from];
        return;
      case msg::MirrorKind::kSymlink:
        entries_[from] = {0, change.other_path};
        return;
      case msg::MirrorKind::kUnlink:
        entries_.erase(from);
        return;
      case msg::MirrorKind::kDropTemporary:
        entries_.erase(number);
        return;
      default:
        return;
    }
  }
  /// Moves a file, or all files of a folder.
  void move(const std::string& from, const std::string& to) {
    Entries moved;
    for (const auto& [path, entry] : entries_) {
      const bool is_in = path == from || path.starts_with(from + "/");
      if (is_in) moved[to + path.substr(from.size())] = entry;
    }
    std::erase_if(entries_, [&](const auto& entry) {
      return entry.first == from || entry.first.starts_with(from + "/");
    });
    for (const auto& [path, entry] : moved) entries_[path] = entry;
  }

  Entries entries_;
};

/// Answers the requests that the benefactor has left unanswered.
inline void answer_all(TestBenefactor& benefactor) {
  benefactor.hangs.clear();
  for (rpc::Responder& late : benefactor.hung) late(msg::Reply{msg::DrainPieces::Reply{}});
  benefactor.hung.clear();
}

}  // namespace stdchk::manager::test
