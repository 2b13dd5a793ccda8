#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/policy/set_naming.h"
#include "core/policy/set_rules.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/chunk_table.h"
#include "manager/state/completion_records.h"
#include "manager/state/set_generations.h"
#include "manager/state/slices.h"
#include "manager/state/stripe_table.h"

namespace stdchk::manager {

/// A committed content of a file.
struct VersionData {
  Version version = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t stored_bytes = 0;  ///< bytes that its slices cover
  std::int64_t mtime_ns = 0;
  /// Orders the commits of the pool; an image that gets its name counts as committed then. Unnamed
  /// files' versions get no number of their own.
  std::uint64_t sequence = 0;
  /// The commit that wrote the content from nothing; later ones changed parts.
  std::uint64_t written = 0;
  std::uint64_t opened = 0;  ///< newest commit of the pool when its session was opened
  bool drained = false;
  bool evicted = false;  ///< memory has lost all its chunks
  NamingState naming = NamingState::kUnknown;
  std::uint32_t pins = 0;
  std::uint32_t copies = 1;  ///< a packed Redundancy, for each chunk
  /// Not 0: number under which the drain directory has its bytes, because another file took the
  /// name. 0: the bytes have the file's name there. Kept in memory only.
  std::uint64_t aside = 0;
  PackedSlices slices;

  /// The commit that wrote the content. 0 for a version without bytes, in memory or drained: a
  /// length alone is no content.
  std::uint64_t content() const {
    return stored_bytes > 0 || (evicted && size_bytes > 0) ? written : 0;
  }
};

/// A name that is taken but not committed. Only the clients in `viewers` see it.
struct PendingName {
  FileId parent;
  std::string name;
  std::vector<ClientId> viewers;
};

/// The rules of sets that a directory sets itself.
struct OwnRules {
  std::optional<bool> by_directory;
  std::optional<std::string> set_names;
  std::optional<std::string> marker;
  std::optional<std::string> pointer;
  std::optional<SetNaming> series;
};

/// A further name of a file: a hard link.
struct Link {
  FileId parent;
  std::string name;
  bool in_drain = false;        ///< as in File
  bool stale_in_drain = false;  ///< as in File
};

/// A file, directory, symbolic link, or special file.
struct File {
  FileId id;
  FileType type = FileType::kRegular;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t atime_ns = 0;
  std::int64_t ctime_ns = 0;
  FileId parent;  ///< none: the file has no committed name
  /// The first name. Paths, policies and the drain use it.
  std::string name;
  std::vector<Link> links;   ///< further names; none without a first name
  std::uint32_t device = 0;  ///< of a device: its number
  bool in_drain = false;     ///< the drain directory may have this file under its name
  /// Under its name the drain directory has another file's old content.
  bool stale_in_drain = false;
  /// Sessions and pins; while above 0, it stays in memory without a name.
  std::uint32_t keeps = 0;
  std::uint32_t subdirectories = 0;
  std::map<std::string, FileId, std::less<>> children;          ///< of a directory
  std::map<std::string, FileId, std::less<>> pending_children;  ///< of a directory
  std::string target;                                           ///< of a symbolic link
  std::map<std::string, std::string> xattrs;
  Policy policy;  ///< of a directory: the settings made there
  /// The rules of sets in the extended attributes of a directory. Null: the directory has none.
  std::shared_ptr<const OwnRules> rules;
  /// Sets of this directory that are whole in the drain directory, the oldest first. At most
  /// limits::kDrainedSetsMax. The link in the drain directory names the last of them; without sets
  /// there is no link.
  std::vector<DrainedSet> drained_sets;
  std::unique_ptr<PendingName> pending;
  VersionData newest;
  std::map<Version, VersionData> older;  ///< pinned versions only
};

struct BenefactorRecord {
  BenefactorId id;
  std::uint64_t life_high = 0;
  std::uint64_t life_low = 0;
  std::uint64_t arena_bytes = 0;
  std::string host_name;
};

/// The files that a command has affected.
struct Outcome {
  FileId file;      ///< made, changed or removed
  FileId replaced;  ///< lost its name to another file
};

/// A State is the manager's durable knowledge: names, versions, chunks, lives of benefactors. Only
/// apply() changes it (rule M7); the same commands in the same order make the same state.
///
/// It also keeps what running sessions need, in memory only: pending files, pins of versions, holds
/// of chunks. These decide when memory is freed, but never what apply() does to committed names and
/// maps. A restarted manager starts without them.
///
/// Threads: one. Errors: a command that fails changes nothing.
class State {
 public:
  State();

  Result<Outcome> apply(const Command& command);
  /// Applies a command on a file without a name, which the journal does not get. Such commands are
  /// not counted by lacks().
  Result<Outcome> apply_unjournalled(const Command& command);
  /// Returns the extents that lost their last reference since the last call.
  std::vector<FreedExtent> take_freed();
  /// Returns data chunks of stripes that since the last call became unused except by their stripe.
  std::vector<ChunkIndex> take_thinned() { return std::exchange(thinned_, {}); }
  /// Emits the commands that make this state from an empty one.
  void snapshot(const std::function<void(Command)>& emit) const;

  // Reading. Pointers are valid until the next change.
  const File* file(FileId id) const;
  Result<const File*> directory(FileId id) const;
  /// Finds committed names, and pending files that `viewer` may see.
  Result<const File*> lookup(FileId parent, std::string_view name, ClientId viewer) const;
  const VersionData* version(FileId id, Version version) const;  ///< version 0: the newest
  Attributes attributes(const File& file, const VersionData& version) const;
  Attributes attributes(const File& file) const { return attributes(file, file.newest); }
  /// Returns slices [first, first + count) with their chunks.
  ChunkMap map_page(const VersionData& version, std::size_t first, std::size_t count) const;
  /// Returns the path from the root, without a leading slash, also for pending files. A file with
  /// several names is shown under the first. Empty: the file has no name.
  std::string path(const File& file) const;
  bool is_below(FileId file, FileId ancestor) const;
  /// Returns the policy in force: the file's own settings, then those of the folders above it.
  Policy policy(const File& file) const;
  /// Returns how names of images in the folder are read; null where sets are directories.
  const SetNaming* naming(const File& folder) const;
  /// Returns the parts of an image's name in the folder; nothing for other names.
  std::optional<PatternName> image_name(FileId folder, std::string_view name) const;
  /// Returns the rules of sets in force for the folder.
  SetRules set_rules(const File& folder) const;
  /// Returns true when a folder has the rule set=directory.
  bool has_directory_sets() const { return directory_set_folders_ > 0; }
  /// Returns the directory that is a set (rule set=directory) and has `id` in it, or is `id`.
  /// Nested directories of sets belong to the outermost. None: `id` is in no such directory.
  FileId set_directory(FileId id) const;
  /// Returns the folder and the name of the set that the entry `name` of `folder` belongs to. The
  /// name is as drained_sets has it.
  std::optional<std::pair<FileId, std::string>> set_of(FileId folder, std::string_view name) const;
  /// Returns true when bytes of the version may have to be read from the drain directory.
  bool needs_drained(const VersionData& version) const;
  /// Returns true when older pinned versions need the file in the drain directory and were not set
  /// aside. A newer version must not take that name before.
  bool older_needs_name(const File& file) const;
  const ChunkTable& chunks() const { return chunks_; }
  const StripeTable& stripes() const { return stripes_; }
  /// Returns true when more than its stripe refers to this data chunk.
  bool is_used(ChunkIndex member) const { return chunks_.references(member) > 1; }
  /// Returns true when no undrained version uses a data chunk of the stripe: memory may lose them.
  bool may_be_lost(const Stripe& stripe) const;
  /// Finds the chunk by its name or, if parity is wanted for it, by its first copy; otherwise
  /// returns kNoChunk.
  ChunkIndex find_member(const Chunk& chunk) const {
    if (!chunk.name.is_named() && chunk.copies.empty()) return kNoChunk;
    return find_chunk(chunk.name, chunk.length,
                      chunk.copies.empty() ? Extent{} : chunk.copies.front());
  }
  /// Calls `visit(file)` for every file, in no particular order.
  template <class Visit>
  void for_each_file(Visit visit) const {
    for (const auto& [id, file] : files_) visit(*file);
  }
  const std::map<BenefactorId, BenefactorRecord>& benefactors() const { return benefactors_; }
  /// Files with names and content, ordered by their newest commit.
  const std::set<std::pair<std::uint64_t, FileId>>& undrained() const { return undrained_; }
  const std::set<std::pair<std::uint64_t, FileId>>& evictable() const { return evictable_; }
  const std::map<std::uint64_t, msg::MirrorChange>& mirror_queue() const { return mirror_queue_; }
  /// The number of the newest change, which may have left the queue.
  std::uint64_t mirror_newest() const { return mirror_sequence_; }
  Epoch epoch() const { return epoch_; }
  /// Returns true when this state is known to have fewer than `sequence` commands of `epoch`.
  bool lacks(Epoch epoch, std::uint64_t sequence) const;
  std::uint64_t file_count() const { return files_.size(); }
  std::uint64_t logical_bytes() const { return logical_bytes_; }
  const History& history() const { return history_; }
  /// The number of the newest commit.
  std::uint64_t sequence() const { return sequence_; }
  const SetGenerations& set_generations() const { return set_generations_; }
  const CompletionRecords& completion_records() const { return completion_records_; }
  /// Among undrained(), files with bytes for which one copy is wanted, and those
  /// for which more is wanted.
  std::uint64_t undrained_single() const { return undrained_single_; }
  std::uint64_t undrained_redundant() const { return undrained_redundant_; }
  bool empty() const { return files_.size() == 1 && benefactors_.empty() && epoch_.value == 0; }

  // Soft state: not journalled.
  Result<const File*> make_pending(FileId id, const NewName& name, ClientId viewer,
                                   std::int64_t now_ns);
  /// Adds a file that has lost its name already.
  void make_unnamed(FileId id, const NewName& name, std::int64_t now_ns);
  void join_pending(FileId id, ClientId viewer);
  void leave_pending(FileId id, ClientId viewer);
  Status rename_pending(FileId id, FileId to_parent, std::string_view to_name);
  void drop_pending_name(FileId id);
  /// Returns what the first commit of a pending file has to create; nothing
  /// when it has no pending name.
  std::optional<NewName> new_name(FileId id) const;
  void keep(FileId id);
  void unkeep(FileId id);
  Status pin(FileId id, Version version);
  void unpin(FileId id, Version version);
  /// Notes that the drain directory has the bytes of older versions under that number from now on.
  void set_older_aside(FileId id, std::uint64_t number);
  /// Returns true when a version's bytes are under that number.
  bool is_aside(FileId id, std::uint64_t number) const;
  void hold(ChunkIndex chunk) { chunks_.refer(chunk, false); }
  void release(ChunkIndex chunk) { release(chunk, false); }

 private:
  Result<Outcome> run(const BeginEpoch& command);
  Result<Outcome> run(const AddBenefactor& command);
  Result<Outcome> run(const CommitVersion& command);
  Result<Outcome> run(const AddDirectory& command);
  Result<Outcome> run(const AddSymlink& command);
  Result<Outcome> run(const AddNode& command);
  Result<Outcome> run(const AddLink& command);
  Result<Outcome> run(const RestoreLink& command);
  Result<Outcome> run(const RemoveName& command);
  Result<Outcome> run(const RenameName& command);
  Result<Outcome> run(const ChangeAttributes& command);
  Result<Outcome> run(const ChangeXattr& command);
  Result<Outcome> run(const DrainStarted& command);
  Result<Outcome> run(const Drained& command);
  Result<Outcome> run(const DrainLost& command);
  Result<Outcome> run(const Evict& command);
  Result<Outcome> run(const Mirrored& command);
  Result<Outcome> run(const MoveChunks& command);
  Result<Outcome> run(const ChangeCopies& command);
  Result<Outcome> run(const MakeStripes& command);
  Result<Outcome> run(const RestoreFile& command);
  Result<Outcome> run(const RestoreCounters& command);
  Result<Outcome> run(const RestoreMirror& command);
  Result<Outcome> run(const SetPolicy& command);
  Result<Outcome> run(const SetLatest& command);
  Result<Outcome> run(const BeginGeneration& command);
  Result<Outcome> run(const RestoreCalls& command);

  File* find(FileId id);
  Result<File*> find_directory(FileId id);
  Result<File*> check_new_name(FileId parent, std::string_view name);
  Status check_new_id(FileId id) const;
  File& add_file(FileId id, FileType type, std::uint32_t mode, std::uint32_t uid, std::uint32_t gid,
                 std::int64_t now_ns);
  void link(File& file, File& parent, std::string_view name);
  void unlink(File& file);  ///< removes the first name
  static std::vector<Link>::iterator find_link(File& file, FileId parent, std::string_view name);
  Link& add_link(File& file, File& parent, std::string_view name);
  void make_first(File& file, FileId parent, std::string_view name);
  void remove_link(File& file, File& parent, std::string_view name, bool mirrors);
  void give_next_name(File& file);
  std::string path(const Link& link) const;
  void mirror_lost_name(File& file, bool directory);
  void keep_for_next_name(File& file);
  void mirror_links(File& file);
  void link_again(File& file, File& parent, std::string_view name, bool elsewhere,
                  std::uint64_t replaced);
  std::optional<PatternName> image_of(const File& file) const;
  std::optional<PatternName> image_of(const File& file, const Link& link) const;
  void read_rules(File& folder);
  void change_rules(File& folder);
  void read_names_again(const File& folder);
  void read_moved_names(const File& directory, const SetNaming* before);
  void note_loss(const File& file);
  void note_image(const File& file, std::uint64_t replaced, std::uint64_t replacing);
  std::uint64_t later_content(const File& file, const ImageName& image) const;
  void erase_if_unused(File& file);
  msg::MirrorChange& mirror(msg::MirrorKind kind, const File& file, std::string path,
                            std::string other = {});
  void set_aside(File& file);
  void add_drained(File& folder, const DrainedSet& set);
  void leave_drained(File& folder, std::string_view name, std::uint64_t written);
  void mirror_latest(File& folder);
  void mirror_rules(const File& folder);
  bool is_latest_target(const File& folder, std::string_view name) const;
  void mirror_rename(File& file, const std::string& from, const std::string& to,
                     const File* replaced);
  void mirror_exchange(File& a, const std::string& path_a, File& b, const std::string& path_b);
  Result<Outcome> exchange(File& from, File& to, const RenameName& command);
  Status check_replace(const File& from, const File& to) const;
  struct Resolved {
    PackedSlices slices;
    std::vector<ChunkIndex> held;   ///< a hold on each chunk, to be released
    std::uint64_t added_bytes = 0;  ///< bytes of chunks new to the table
  };
  Resolved resolve(const ChunkMap& written, const File* file);
  Result<Outcome> load(File& file, const CommitVersion& command);
  bool change_copies(ChunkIndex index, const ChangeCopies::Change& change);
  void release(ChunkIndex chunk, bool undrained);
  void end_if_unused(ChunkIndex member);
  ChunkIndex find_chunk(const ChunkName& name, std::uint32_t length, const Extent& at) const;
  void make_stripe(const MakeStripes::Stripe& stripe, const std::map<Extent, ChunkIndex>& places);
  void end_stripe(StripeIndex index);
  void set_newest(File& file, VersionData next);
  void refer(const VersionData& version);
  void drop(VersionData& version);
  void enlist(const File& file);
  void delist(const File& file);
  std::uint64_t& undrained_like(const VersionData& version) {
    return version.copies == 1 ? undrained_single_ : undrained_redundant_;
  }

  std::unordered_map<FileId, std::unique_ptr<File>> files_;
  ChunkTable chunks_;
  StripeTable stripes_;
  std::map<BenefactorId, BenefactorRecord> benefactors_;
  std::vector<FreedExtent> freed_;
  std::vector<ChunkIndex> thinned_;
  std::set<std::pair<std::uint64_t, FileId>> undrained_;
  std::set<std::pair<std::uint64_t, FileId>> evictable_;
  std::map<std::uint64_t, msg::MirrorChange> mirror_queue_;
  Epoch epoch_;
  /// Number of commands in each epoch of the block.
  std::map<Epoch, std::uint64_t> records_{{Epoch{}, 0}};
  std::uint64_t sequence_ = 0;
  std::uint64_t directory_set_folders_ = 0;  ///< directories with the rule set=directory
  std::uint64_t mirror_sequence_ = 0;
  std::uint64_t logical_bytes_ = 0;
  std::uint64_t undrained_single_ = 0;
  std::uint64_t undrained_redundant_ = 0;
  History history_;
  SetGenerations set_generations_;
  CompletionRecords completion_records_;
};

/// Returns kInvalidArgument or kNameTooLong unless `name` can be a directory entry.
Status check_name(std::string_view name);

}  // namespace stdchk::manager
