#include "manager/state/state.h"

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/policy/image_name.h"

namespace stdchk::manager {

Status check_name(std::string_view name) {
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "manager.name");
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos) {
    return fail(Code::kInvalidArgument, "manager.name");
  }
  return {};
}

/// All users of a shared mount may make names in its root. Sticky as /tmp is, so that nobody
/// renames or removes what belongs to another user.
constexpr std::uint32_t kRootMode = 01777;

State::State() { add_file(kRootFile, FileType::kDirectory, kRootMode, 0, 0, 0).parent = kRootFile; }

Result<Outcome> State::apply(const Command& command) {
  const auto outcome = apply_unjournalled(command);
  if (!outcome) return outcome;
  if (!std::holds_alternative<RestoreCounters>(command)) {
    if (const auto count = records_.find(epoch_); count != records_.end()) ++count->second;
  }
  std::visit(
      [this]<class C>(const C& one) {
        if constexpr (requires { one.caller; }) completion_records_.add(one.caller);
      },
      command);
  return outcome;
}

Result<Outcome> State::apply_unjournalled(const Command& command) {
  return std::visit([this](const auto& one) { return run(one); }, command);
}

std::vector<FreedExtent> State::take_freed() {
  std::vector<FreedExtent> out;
  out.swap(freed_);
  return out;
}

// ---- reading ----------------------------------------------------------------------------------

const File* State::file(FileId id) const {
  const auto found = files_.find(id);
  return found == files_.end() ? nullptr : found->second.get();
}

File* State::find(FileId id) { return const_cast<File*>(file(id)); }

Result<const File*> State::directory(FileId id) const {
  const File* found = file(id);
  if (found == nullptr) return fail(Code::kNotFound, "manager.directory");
  if (found->type != FileType::kDirectory) return fail(Code::kNotDirectory, "manager.directory");
  return found;
}

Result<File*> State::find_directory(FileId id) {
  STDCHK_ASSIGN(const File* found, directory(id));
  return const_cast<File*>(found);
}

Result<const File*> State::lookup(FileId parent, std::string_view name, ClientId viewer) const {
  STDCHK_ASSIGN(const File* directory_file, directory(parent));
  const auto pending = directory_file->pending_children.find(name);
  if (pending != directory_file->pending_children.end()) {
    const File* found = file(pending->second);
    const auto& viewers = found->pending->viewers;
    if (std::find(viewers.begin(), viewers.end(), viewer) != viewers.end()) return found;
  }
  const auto child = directory_file->children.find(name);
  if (child == directory_file->children.end()) return fail(Code::kNotFound, "manager.lookup");
  return file(child->second);
}

const VersionData* State::version(FileId id, Version wanted) const {
  const File* found = file(id);
  if (found == nullptr) return nullptr;
  if (wanted == 0 || wanted == found->newest.version) return &found->newest;
  const auto old = found->older.find(wanted);
  return old == found->older.end() ? nullptr : &old->second;
}

Attributes State::attributes(const File& file, const VersionData& version) const {
  Attributes out;
  out.id = file.id;
  out.type = file.type;
  out.mode = file.mode;
  out.uid = file.uid;
  out.gid = file.gid;
  out.link_count = file.type == FileType::kDirectory ? 2 + file.subdirectories
                   : file.parent  ? 1 + static_cast<std::uint32_t>(file.links.size())
                   : file.pending ? 1
                                  : 0;
  out.size_bytes = file.type == FileType::kSymlink ? file.target.size() : version.size_bytes;
  out.stored_bytes = version.stored_bytes;
  out.version = version.version;
  out.atime_ns = file.atime_ns;
  out.mtime_ns = version.mtime_ns;
  out.ctime_ns = file.ctime_ns;
  out.device = file.device;
  if (file.type == FileType::kRegular && version.version > 0) {
    out.copies = version.copies;
    out.naming = version.naming;
    out.drain = version.drained ? DrainState::kDrained : DrainState::kPending;
  }
  return out;
}

ChunkMap State::map_page(const VersionData& version, std::size_t first, std::size_t count) const {
  ChunkMap page;
  std::unordered_map<ChunkIndex, std::uint32_t> numbers;
  const std::size_t end = std::min(version.slices.size(), first + count);
  for (std::size_t i = first; i < end; ++i) {
    const PackedSlice& slice = version.slices[i];
    const auto [number, added] =
        numbers.emplace(slice.chunk, static_cast<std::uint32_t>(page.chunks.size()));
    if (added) page.chunks.push_back(chunks_.get(slice.chunk));
    page.slices.push_back({slice.file_offset, slice.length, slice.chunk_offset, number->second});
  }
  return page;
}

std::string State::path(const File& file_at) const {
  std::string out;
  const File* at = &file_at;
  while (at != nullptr && at->id != kRootFile) {
    const std::string& name = at->parent ? at->name : at->pending ? at->pending->name : out;
    if (!at->parent && !at->pending) return {};
    out = out.empty() ? name : name + "/" + out;
    at = file(at->parent ? at->parent : at->pending->parent);
  }
  return out;
}

bool State::is_below(FileId id, FileId ancestor) const {
  for (const File* at = file(id); at != nullptr; at = file(at->parent)) {
    if (at->id == ancestor) return true;
    if (at->id == kRootFile) return false;
  }
  return false;
}

Policy State::policy(const File& of) const {
  Policy out;
  for (const File* at = &of; at != nullptr;) {
    out.inherit(at->policy);
    if (at->id == kRootFile) break;
    at = file(at->parent ? at->parent : at->pending ? at->pending->parent : FileId{});
  }
  return out;
}

bool State::needs_drained(const VersionData& version) const {
  return version.drained ||
         std::any_of(version.slices.begin(), version.slices.end(),
                     [this](const PackedSlice& slice) { return !chunks_.has_copies(slice.chunk); });
}

bool State::older_needs_name(const File& file) const {
  return std::any_of(file.older.begin(), file.older.end(), [this](const auto& older) {
    return older.second.aside == 0 && needs_drained(older.second);
  });
}

bool State::is_aside(FileId id, std::uint64_t number) const {
  const File* of = file(id);
  return of != nullptr && (of->newest.aside == number ||
                           std::any_of(of->older.begin(), of->older.end(), [&](const auto& older) {
                             return older.second.aside == number;
                           }));
}

// ---- shared by commands -----------------------------------------------------------------------

File& State::add_file(FileId id, FileType type, std::uint32_t mode, std::uint32_t uid,
                      std::uint32_t gid, std::int64_t now_ns) {
  auto made = std::make_unique<File>();
  made->id = id;
  made->type = type;
  made->mode = mode & 07777;
  made->uid = uid;
  made->gid = gid;
  made->atime_ns = made->ctime_ns = made->newest.mtime_ns = now_ns;
  File& out = *made;
  files_[id] = std::move(made);
  return out;
}

void State::link(File& file, File& parent, std::string_view name) {
  file.parent = parent.id;
  file.name = name;
  parent.children.emplace(name, file.id);
  if (file.type == FileType::kDirectory) ++parent.subdirectories;
  if (const auto image = image_of(file))
    set_generations_.add(parent.id, *image, file.newest.written);
  enlist(file);
}

void State::unlink(File& file) {
  delist(file);
  if (const auto image = image_of(file)) set_generations_.remove(file.parent, *image);
  File* parent = find(file.parent);
  parent->children.erase(file.name);
  if (file.type == FileType::kDirectory) --parent->subdirectories;
  file.parent = {};
  file.name.clear();
}

/// Links a renamed file under its new name. An image counts as written into its new set now.
/// `elsewhere`: it comes from another folder. `replaced`: content() of the file that had the name.
void State::link_again(File& file, File& parent, std::string_view name, bool elsewhere,
                       std::uint64_t replaced) {
  if (file.type == FileType::kRegular && file.newest.version > 0 && image_name(parent.id, name)) {
    // A session opened for another folder, or before the replaced content was written, says nothing
    // about the sets here.
    if (elsewhere || replaced > file.newest.opened) file.newest.opened = sequence_;
    file.newest.sequence = file.newest.written = ++sequence_;
  }
  link(file, parent, name);
  note_image(file, replaced, 0);
}

/// Tells the generations that the file is about to lose its name, and no other file gets it.
void State::note_loss(const File& file) {
  if (const auto image = image_of(file)) {
    set_generations_.lose(file.parent, *image, file.newest.content(), sequence_);
  }
}

/// Tells the generations that an image was written from nothing, or has got its name.
void State::note_image(const File& file, std::uint64_t replaced, std::uint64_t replacing) {
  const auto image = image_of(file);
  if (!image || file.newest.version == 0) return;
  SetGenerations::Write write{file.newest.opened, replaced, 0, replacing, file.newest.sequence};
  if (set_generations_.has_later(file.parent, *image)) write.later = later_content(file, *image);
  set_generations_.write(file.parent, *image, write);
}

/// Returns the newest content of later timesteps of this rank that existed when `file` was opened.
std::uint64_t State::later_content(const File& file, const ImageName& image) const {
  std::uint64_t newest = 0;
  const auto& children = this->file(file.parent)->children;
  const SetNaming& names = *naming(*this->file(file.parent));
  const std::string_view prefix = names.until_timestep(file.name);
  for (auto child = children.lower_bound(prefix);
       child != children.end() && child->first.starts_with(prefix); ++child) {
    const auto other = names.parse(child->first);
    if (!other || other->node != image.node || other->timestep <= image.timestep) continue;
    const std::uint64_t content = this->file(child->second)->newest.content();
    if (content <= file.newest.opened) newest = std::max(newest, content);
  }
  return newest;
}

/// Adds a file with a name and a content to the lists that are ordered by newest commits.
void State::enlist(const File& file) {
  if (!file.parent || file.type != FileType::kRegular || file.newest.version == 0) return;
  if (!file.newest.drained) {
    undrained_.emplace(file.newest.sequence, file.id);
    if (file.newest.stored_bytes > 0) ++undrained_like(file.newest);
  } else if (!file.newest.evicted) {
    evictable_.emplace(file.newest.sequence, file.id);
  }
  logical_bytes_ += file.newest.size_bytes;
}

void State::delist(const File& file) {
  if (!file.parent || file.type != FileType::kRegular || file.newest.version == 0) return;
  const bool was_undrained = undrained_.erase({file.newest.sequence, file.id}) > 0;
  if (was_undrained && file.newest.stored_bytes > 0) --undrained_like(file.newest);
  evictable_.erase({file.newest.sequence, file.id});
  logical_bytes_ -= file.newest.size_bytes;
}

void State::refer(const VersionData& version) {
  for (const PackedSlice& slice : version.slices) {
    chunks_.refer(slice.chunk, !version.drained);
    chunks_.want(slice.chunk, redundancy_of(version.copies).value_or(Redundancy{}));
  }
}

void State::drop(VersionData& version) {
  for (const PackedSlice& slice : version.slices) {
    release(slice.chunk, !version.drained);
  }
  version.slices.clear();
}

void State::erase_if_unused(File& file) {
  if (file.parent || file.keeps > 0 || file.id == kRootFile) return;
  if (file.pending) drop_pending_name(file.id);
  drop(file.newest);
  for (auto& [number, old] : file.older) drop(old);
  if (file.rules && file.rules->by_directory == true) --directory_set_folders_;
  files_.erase(file.id);
}

/// Requires that the caller has counted the references of `next`.
void State::set_newest(File& file, VersionData next) {
  delist(file);
  VersionData old = std::move(file.newest);
  file.newest = std::move(next);
  if (old.pins > 0) {
    const Version number = old.version;
    file.older.emplace(number, std::move(old));
  } else {
    drop(old);
  }
  enlist(file);
}

Result<Outcome> State::run(const BeginEpoch& command) {
  const std::uint64_t before = epoch_ ? 0 : records_[epoch_];
  if (!same_block(epoch_, command.epoch)) records_.clear();
  epoch_ = command.epoch;
  records_[epoch_] = before;
  return Outcome{};
}

Result<Outcome> State::run(const AddBenefactor& command) {
  if (!command.id || command.id.value >= (1U << 24)) {
    return fail(Code::kInvalidArgument, "manager.add_benefactor");
  }
  benefactors_[command.id] = {command.id, command.life_high, command.life_low, command.arena_bytes,
                              command.host_name};
  return Outcome{};
}

// ---- soft state -------------------------------------------------------------------------------

/// Returns true for a name with a star that the link `latest` names. Such a name comes from a
/// program that has opened the link, which stands for a set, as a file.
bool State::is_latest_target(const File& folder, std::string_view name) const {
  if (name.find('*') == std::string_view::npos) return false;
  const auto link_at = folder.children.find(kLatestName);
  if (link_at == folder.children.end()) return false;
  const File& latest = *file(link_at->second);
  return latest.type == FileType::kSymlink && latest.target == name;
}

Result<const File*> State::make_pending(FileId id, const NewName& name, ClientId viewer,
                                        std::int64_t now_ns) {
  STDCHK_ASSIGN(File * parent, find_directory(name.parent));
  STDCHK_TRY(check_name(name.name));
  if (parent->pending_children.count(name.name) > 0) return fail(Code::kExists, "manager.create");
  if (is_latest_target(*parent, name.name)) return fail(Code::kInvalidArgument, "manager.latest");
  File& made = add_file(id, FileType::kRegular, name.mode, name.uid, name.gid, now_ns);
  made.pending = std::make_unique<PendingName>(PendingName{name.parent, name.name, {viewer}});
  parent->pending_children.emplace(name.name, id);
  return &made;
}

void State::make_unnamed(FileId id, const NewName& name, std::int64_t now_ns) {
  add_file(id, FileType::kRegular, name.mode, name.uid, name.gid, now_ns);
}

void State::join_pending(FileId id, ClientId viewer) {
  File* joined = find(id);
  if (joined == nullptr || !joined->pending) return;
  auto& viewers = joined->pending->viewers;
  if (std::find(viewers.begin(), viewers.end(), viewer) == viewers.end()) viewers.push_back(viewer);
}

void State::leave_pending(FileId id, ClientId viewer) {
  File* left = find(id);
  if (left != nullptr && left->pending) std::erase(left->pending->viewers, viewer);
}

void State::drop_pending_name(FileId id) {
  File* dropped = find(id);
  if (dropped == nullptr || !dropped->pending) return;
  if (File* parent = find(dropped->pending->parent)) {
    parent->pending_children.erase(dropped->pending->name);
  }
  dropped->pending.reset();
}

Status State::rename_pending(FileId id, FileId to_parent, std::string_view to_name) {
  STDCHK_TRY(check_name(to_name));
  STDCHK_ASSIGN(File * parent, find_directory(to_parent));
  File* renamed = find(id);
  if (renamed == nullptr || !renamed->pending) return fail(Code::kNotFound, "manager.rename");
  const auto taken = parent->children.find(to_name);
  if (taken != parent->children.end() && file(taken->second)->type == FileType::kDirectory) {
    return fail(Code::kIsDirectory, "manager.rename");
  }
  const auto other = parent->pending_children.find(to_name);
  if (other != parent->pending_children.end() && other->second != id) {
    drop_pending_name(other->second);
  }
  PendingName next{to_parent, std::string(to_name), std::move(renamed->pending->viewers)};
  find(renamed->pending->parent)->pending_children.erase(renamed->pending->name);
  *renamed->pending = std::move(next);
  parent->pending_children[std::string(to_name)] = id;
  return {};
}

std::optional<NewName> State::new_name(FileId id) const {
  const File* of = file(id);
  if (of == nullptr || !of->pending) return std::nullopt;
  return NewName{of->pending->parent,
                 of->pending->name,
                 of->mode,
                 of->uid,
                 of->gid,
                 of->atime_ns,
                 {of->xattrs.begin(), of->xattrs.end()}};
}

void State::keep(FileId id) {
  File* kept = find(id);
  STDCHK_ASSERT(kept != nullptr);
  ++kept->keeps;
}

void State::unkeep(FileId id) {
  File* kept = find(id);
  STDCHK_ASSERT(kept != nullptr && kept->keeps > 0);
  --kept->keeps;
  erase_if_unused(*kept);
}

Status State::pin(FileId id, Version number) {
  auto* pinned = const_cast<VersionData*>(version(id, number));
  if (pinned == nullptr) return fail(Code::kStale, "manager.pin");
  ++pinned->pins;
  keep(id);
  return {};
}

void State::unpin(FileId id, Version number) {
  auto* pinned = const_cast<VersionData*>(version(id, number));
  STDCHK_ASSERT(pinned != nullptr && pinned->pins > 0);
  File* of = find(id);
  if (--pinned->pins == 0 && pinned != &of->newest) {
    drop(*pinned);
    of->older.erase(number);
  }
  unkeep(id);
}

void State::set_older_aside(FileId id, std::uint64_t number) {
  File* of = find(id);
  if (of == nullptr) return;
  for (auto& [version, older] : of->older) {
    if (older.aside == 0 && needs_drained(older)) older.aside = number;
  }
}

}  // namespace stdchk::manager
