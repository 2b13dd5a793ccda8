#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A MetadataCache keeps what the manager has told of names and attributes, each for at most
/// limits::kCacheLease, and no longer than until the manager tells that it changed.
///
/// Threads: one at a time (the engine's lock).
/// Limits: kEntriesMax of each kind; when full it starts again empty.
class MetadataCache {
 public:
  static constexpr std::size_t kEntriesMax = 65536;
  explicit MetadataCache(const Clock& clock) : clock_(clock) {}

  /// An answer to a look-up: attributes, or none where the name does not exist.
  struct Known {
    std::optional<Attributes> attributes;
  };
  std::optional<Known> entry(FileId parent, std::string_view name) const;
  std::optional<Attributes> attributes(FileId file) const;
  /// Valid until the next change.
  const std::vector<msg::DirectoryEntry>* listing(FileId directory) const;

  void put(FileId parent, std::string_view name, const Attributes& attributes);
  void put_absent(FileId parent, std::string_view name);
  /// What is known to be newer stays: answers reach the cache in any order.
  void put(const Attributes& attributes);
  void put_listing(FileId directory, std::vector<msg::DirectoryEntry> entries);

  void forget_entry(FileId parent, std::string_view name);
  /// The name only: the directory's own attributes are still right, or are put next.
  void forget_name(FileId parent, std::string_view name);
  void forget_file(FileId file);
  void forget_all();

 private:
  struct Entry {
    Time until{};
    FileId file;  ///< none: the name does not exist
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
