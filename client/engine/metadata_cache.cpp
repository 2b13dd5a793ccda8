#include "client/engine/metadata_cache.h"

#include <tuple>

#include "core/base/limits.h"

namespace stdchk::client {

Time MetadataCache::lease() const { return clock_.now() + limits::kCacheLease; }

std::optional<MetadataCache::Known> MetadataCache::entry(FileId parent,
                                                         std::string_view name) const {
  const auto found = entries_.find(std::pair(parent, std::string(name)));
  if (found == entries_.end() || found->second.until <= clock_.now()) return std::nullopt;
  if (!found->second.file) return Known{};
  const auto known = attributes(found->second.file);
  if (!known.has_value()) return std::nullopt;
  return Known{known};
}

std::optional<Attributes> MetadataCache::attributes(FileId file) const {
  const auto found = files_.find(file);
  if (found == files_.end() || found->second.until <= clock_.now()) return std::nullopt;
  return found->second.attributes;
}

const std::vector<msg::DirectoryEntry>* MetadataCache::listing(FileId directory) const {
  const auto found = listings_.find(directory);
  if (found == listings_.end() || found->second.until <= clock_.now()) return nullptr;
  return &found->second.entries;
}

void MetadataCache::put(FileId parent, std::string_view name, const Attributes& attributes) {
  if (entries_.size() >= kEntriesMax) entries_.clear();
  entries_[{parent, std::string(name)}] = Entry{lease(), attributes.id};
  put(attributes);
}

void MetadataCache::put_negative(FileId parent, std::string_view name) {
  if (entries_.size() >= kEntriesMax) entries_.clear();
  entries_[{parent, std::string(name)}] = Entry{lease(), FileId{}};
}

void MetadataCache::put(const Attributes& attributes) {
  if (files_.size() >= kEntriesMax) files_.clear();
  File& file = files_[attributes.id];
  const bool older = std::tie(attributes.version, attributes.ctime_ns) <
                     std::tie(file.attributes.version, file.attributes.ctime_ns);
  if (older && file.until > clock_.now()) return;
  file = File{lease(), attributes};
}

void MetadataCache::put_listing(FileId directory, std::vector<msg::DirectoryEntry> entries) {
  if (listings_.size() >= kEntriesMax / 64) listings_.clear();
  listings_[directory] = Listing{lease(), std::move(entries)};
}

void MetadataCache::forget_entry(FileId parent, std::string_view name) {
  forget_name(parent, name);
  files_.erase(parent);  // the directory's times have changed
}

void MetadataCache::forget_name(FileId parent, std::string_view name) {
  entries_.erase({parent, std::string(name)});
  listings_.erase(parent);
}

void MetadataCache::forget_file(FileId file) { files_.erase(file); }

void MetadataCache::forget_all() {
  entries_.clear();
  files_.clear();
  listings_.clear();
}

}  // namespace stdchk::client
