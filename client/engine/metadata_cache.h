#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A MetadataCache keeps names and attributes from the manager's answers, each for at most
/// limits::kCacheLease. A notice of a change from the manager drops them earlier.
///
/// Threads: one at a time (the engine's lock).
/// Limits: kEntriesMax of each kind; when full, it drops all of that kind.
class MetadataCache {
 public:
  static constexpr std::size_t kEntriesMax = 65536;
  explicit MetadataCache(const Clock& clock) : clock_(clock) {}

  /// A cached look-up: the attributes, or none for a negative cache entry (the name does not
  /// exist).
  struct Known {
    std::optional<Attributes> attributes;
  };
  std::optional<Known> entry(FileId parent, std::string_view name) const;
  std::optional<Attributes> attributes(FileId file) const;
  /// The pointer is valid until the cache changes.
  const std::vector<msg::DirectoryEntry>* listing(FileId directory) const;

  void put(FileId parent, std::string_view name, const Attributes& attributes);
  void put_negative(FileId parent, std::string_view name);
  /// Keeps the cached attributes if they are newer: answers arrive in any order.
  void put(const Attributes& attributes);
  /// Keeps the order of the names. Each name is put by itself, when its answer comes.
  void put_listing(FileId directory, std::vector<msg::DirectoryEntry> entries);

  void forget_entry(FileId parent, std::string_view name);
  /// Drops the name but keeps the directory's attributes: they are still right, or are put next.
  void forget_name(FileId parent, std::string_view name);
  void forget_file(FileId file);
  void forget_all();

 private:
  struct Entry {
    Time until{};
    FileId file;  ///< none: a negative cache entry
  };
  struct File {
    Time until{};
    Attributes attributes;
  };
  struct Listing {
    Time until{};
    std::vector<msg::DirectoryEntry> entries;
  };
  Time lease() const;

  const Clock& clock_;
  std::map<std::pair<FileId, std::string>, Entry, std::less<>> entries_;
  std::unordered_map<FileId, File> files_;
  std::unordered_map<FileId, Listing> listings_;
};

}  // namespace stdchk::client
