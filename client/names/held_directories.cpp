#include "client/names/held_directories.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/policy/image_name.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kTimes = static_cast<std::uint32_t>(msg::SetMask::kAtime) |
                                 static_cast<std::uint32_t>(msg::SetMask::kMtime);

bool has(const msg::NameChange& change, msg::SetMask bit) {
  return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
}

Attributes new_attributes(const msg::NameChange& change, FileType type, std::int64_t now_ns) {
  Attributes out;
  out.id = change.file;
  out.type = type;
  out.mode = type == FileType::kSymlink ? 0777 : change.mode & 07777;
  out.uid = change.uid;
  out.gid = change.gid;
  out.link_count = type == FileType::kDirectory ? 2 : 1;
  out.size_bytes = type == FileType::kSymlink ? change.target.size() : 0;
  out.atime_ns = out.mtime_ns = out.ctime_ns = now_ns;
  out.has_no_xattrs = true;  // a directory with a default list is not leased
  return out;
}

void apply(const msg::NameChange& change, Attributes& to) {
  if (has(change, msg::SetMask::kMode)) to.mode = change.mode & 07777;
  if (has(change, msg::SetMask::kUid)) to.uid = change.uid;
  if (has(change, msg::SetMask::kGid)) to.gid = change.gid;
  if (has(change, msg::SetMask::kAtime)) to.atime_ns = change.atime_ns;
  if (has(change, msg::SetMask::kMtime)) to.mtime_ns = change.mtime_ns;
  to.ctime_ns = change.time_ns;
}

}  // namespace

bool is_name_for_manager(std::string_view name, const HeldDirectories::Directory& directory,
                         bool drains) {
  const auto is_text = [](char one) { return static_cast<unsigned char>(one) < 0x80; };
  // Names that begin with `.stdchk-` belong to the pool. Some drain directories take only UTF-8.
  return is_name_of_sets(name) || name.starts_with(".stdchk-") ||
         name.size() > directory.name_bytes_max || (drains && !std::ranges::all_of(name, is_text));
}

const HeldDirectories::Directory* HeldDirectories::directory(FileId id) const {
  const auto found = directories_.find(id);
  return found == directories_.end() ? nullptr : &found->second;
}

const HeldDirectories::File* HeldDirectories::file(FileId id) const {
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : &found->second;
}

const HeldDirectories::File* HeldDirectories::find(FileId directory, std::string_view name,
                                                   FileId* id) const {
  const Names& names = directories_.at(directory).names;
  const auto found = names.find(name);
  if (found == names.end()) return nullptr;
  if (id != nullptr) *id = found->second;
  return &files_.at(found->second);
}

std::optional<Attributes> HeldDirectories::attributes(FileId id) const {
  if (const Directory* const held = directory(id)) return held->attributes;
  const File* const named = file(id);
  return named == nullptr ? std::nullopt : named->attributes;
}

std::vector<FileId> HeldDirectories::directories() const {
  std::vector<FileId> out;
  out.reserve(directories_.size());
  for (const auto& [id, directory] : directories_) out.push_back(id);
  return out;
}

void HeldDirectories::link(FileId id, File file) {
  directories_.at(file.parent).names.insert_or_assign(file.name, id);
  files_.insert_or_assign(id, std::move(file));
}

void HeldDirectories::add(Directory directory, const std::vector<msg::DirectoryEntry>& entries,
                          const std::function<bool(FileId)>& is_written) {
  const FileId id = directory.attributes.id;
  directories_.insert_or_assign(id, std::move(directory));
  for (const msg::DirectoryEntry& entry : entries) {
    const Attributes& attributes = entry.attributes;
    File file{id, entry.name, attributes.type, Stage::kStored, attributes};
    // Others may change a directory in a held directory.
    const bool is_shared = attributes.type == FileType::kDirectory;
    if (is_shared || is_written(attributes.id)) file.attributes.reset();
    link(attributes.id, std::move(file));
  }
}

void HeldDirectories::drop(FileId directory) {
  const auto found = directories_.find(directory);
  if (found == directories_.end()) return;
  for (const auto& [name, id] : found->second.names) files_.erase(id);
  directories_.erase(found);
}

void HeldDirectories::forget_attributes(FileId id) {
  const auto found = files_.find(id);
  if (found != files_.end()) found->second.attributes.reset();
}

void HeldDirectories::set_stage(FileId id, Stage stage) {
  const auto found = files_.find(id);
  if (found != files_.end()) found->second.stage = stage;
}

void HeldDirectories::erase(FileId id) {
  const auto found = files_.find(id);
  if (found == files_.end()) return;
  directories_.at(found->second.parent).names.erase(found->second.name);
  files_.erase(found);
}

void HeldDirectories::touch(FileId directory, std::int64_t now_ns) {
  Attributes& attributes = directories_.at(directory).attributes;
  attributes.mtime_ns = attributes.ctime_ns = now_ns;
}

const HeldDirectories::File& HeldDirectories::make_file(const msg::NameChange& change,
                                                        std::int64_t now_ns) {
  link(change.file, File{change.parent, change.name, FileType::kRegular, Stage::kEmpty,
                         new_attributes(change, FileType::kRegular, now_ns)});
  return files_.at(change.file);
}

std::vector<msg::NameChange> HeldDirectories::store(FileId id, std::int64_t now_ns, bool drains) {
  File& file = files_.at(id);
  STDCHK_ASSERT(file.stage == Stage::kEmpty && file.attributes.has_value());
  file.stage = Stage::kStored;
  Attributes& attributes = *file.attributes;
  // The kernel keeps the time of the create. The directory's time must not go back to it.
  const bool is_as_created = attributes.mtime_ns == attributes.ctime_ns;
  if (is_as_created && directories_.at(file.parent).attributes.mtime_ns <= attributes.mtime_ns) {
    now_ns = attributes.mtime_ns;
  }
  msg::NameChange times;
  times.kind = msg::NameChangeKind::kAttributes;
  times.file = id;
  times.mask = std::exchange(file.times_set, 0U);
  times.atime_ns = attributes.atime_ns;
  times.mtime_ns = attributes.mtime_ns;
  times.time_ns = now_ns;
  attributes.version = 1;
  attributes.atime_ns = attributes.mtime_ns = attributes.ctime_ns = now_ns;
  attributes.drain = drains ? DrainState::kPending : DrainState::kNone;
  touch(file.parent, now_ns);
  msg::NameChange change;
  change.kind = msg::NameChangeKind::kAddFile;
  change.parent = file.parent;
  change.name = file.name;
  change.file = id;
  change.mode = attributes.mode;
  change.uid = attributes.uid;
  change.gid = attributes.gid;
  change.time_ns = now_ns;
  if (times.mask == 0) return {change};
  // The manager gives a new file the times of its change. So the times that were set come behind it.
  apply(times, attributes);
  return {change, times};
}

Attributes HeldDirectories::make(const msg::NameChange& change) {
  const bool is_directory = change.kind == msg::NameChangeKind::kAddDirectory;
  const FileType type = is_directory ? FileType::kDirectory : FileType::kSymlink;
  const Attributes attributes = new_attributes(change, type, change.time_ns);
  File file{change.parent, change.name, type, Stage::kStored, attributes};
  if (is_directory) file.attributes.reset();
  link(change.file, std::move(file));
  touch(change.parent, change.time_ns);
  Directory& parent = directories_.at(change.parent);
  if (!is_directory) return attributes;
  ++parent.attributes.link_count;
  if (!change.lease) return attributes;
  // The drain directory limits the length of a whole path.
  const std::size_t used = change.name.size() + 1;
  const std::size_t most = parent.name_bytes_max;
  directories_.insert_or_assign(change.file,
                                Directory{{}, attributes, most > used ? most - used : 0});
  return attributes;
}

void HeldDirectories::remove(const msg::NameChange& change) {
  if (change.kind == msg::NameChangeKind::kRemoveDirectory) {
    directories_.erase(change.file);
    --directories_.at(change.parent).attributes.link_count;
  }
  erase(change.file);
  touch(change.parent, change.time_ns);
}

void HeldDirectories::rename(const msg::NameChange& change) {
  FileId replaced;
  if (find(change.to_parent, change.to_name, &replaced) != nullptr) erase(replaced);
  File moved = files_.at(change.file);
  erase(change.file);
  moved.parent = change.to_parent;
  moved.name = change.to_name;
  if (moved.attributes.has_value()) moved.attributes->ctime_ns = change.time_ns;
  link(change.file, std::move(moved));
  touch(change.parent, change.time_ns);
  touch(change.to_parent, change.time_ns);
}

void HeldDirectories::change_attributes(const msg::NameChange& change) {
  const auto held = directories_.find(change.file);
  if (held != directories_.end()) return apply(change, held->second.attributes);
  const auto named = files_.find(change.file);
  if (named == files_.end() || !named->second.attributes.has_value()) return;
  File& file = named->second;
  apply(change, *file.attributes);
  if (file.stage == Stage::kEmpty) file.times_set |= change.mask & kTimes;
}

}  // namespace stdchk::client
