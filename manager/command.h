#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/messages/messages.h"
#include "core/one_of.h"
#include "core/types.h"

/// The commands that change the manager's durable state (rule M7). Times, ids and the places
/// of copies do not follow from the state, so they are fields of commands. Therefore the
/// same commands in the same order give the same state. A field is never removed;
/// journal.capnp defines the bytes.
namespace stdchk::manager {

using Xattrs = std::vector<std::pair<std::string, std::string>>;

/// The number of epochs in a block. A restarted manager takes the next epoch of its block; a
/// rebuilt manager begins the next block. So the manager that it replaces, if it starts again, gets
/// other epochs.
inline constexpr std::uint64_t kEpochBlock = 256;
constexpr bool same_block(Epoch one, Epoch other) {
  return one.value / kEpochBlock == other.value / kEpochBlock;
}

/// Identifies the call by which a client asked for a change; it is the call's completion record. An
/// empty `client` means that no client asked.
struct Caller {
  ClientId client;
  std::uint64_t call = 0;
  bool operator==(const Caller&) const = default;
};

/// The manager has started.
struct BeginEpoch {
  Epoch epoch;
  bool operator==(const BeginEpoch&) const = default;
};

struct AddBenefactor {
  BenefactorId id;
  std::uint64_t life_high = 0;
  std::uint64_t life_low = 0;
  std::uint64_t arena_bytes = 0;
  std::string host_name;
  bool operator==(const AddBenefactor&) const = default;
};

/// The name that a pending file gets with its first commit, and its attributes.
struct NewName {
  FileId parent;
  std::string name;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t atime_ns = 0;
  Xattrs xattrs;
  bool operator==(const NewName&) const = default;
};

/// Commits a new version of a file. Its map is the newest map, cut at `cut_bytes` if `cut_before`,
/// overlaid with `written`. Its size is `size_bytes` if `set_size`, otherwise at least that. The
/// copies of each chunk are those that the table holds afterwards.
struct CommitVersion {
  FileId file;
  std::optional<NewName> create;
  bool cut_before = false;
  std::uint64_t cut_bytes = 0;
  bool set_size = false;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t now_ns = 0;
  ChunkMap written;
  bool mirror = false;
  std::uint32_t copies = 0;  ///< a packed Redundancy, for each chunk
  /// `opened` is the pool's newest commit when the session was opened. `replacing` is that of
  /// another open session that rewrites an image of the same set, or 0.
  std::uint64_t opened = 0;
  std::uint64_t replacing = 0;
  NamingState naming = NamingState::kUnknown;  ///< of the written chunks
  /// Not 0: puts drained bytes back into memory. `written` is the content of version `same_as`,
  /// which must be the newest and drained. Only `written`, `copies` and `naming` count then.
  Version same_as = 0;
  bool operator==(const CommitVersion&) const = default;
};

struct AddDirectory {
  FileId id;
  FileId parent;
  std::string name;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t now_ns = 0;
  bool mirror = false;  ///< in all commands: repeat the change in the drain directory
  Caller caller{};
  bool operator==(const AddDirectory&) const = default;
};

struct AddSymlink {
  FileId id;
  FileId parent;
  std::string name;
  std::string target;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t now_ns = 0;
  bool mirror = false;
  Caller caller{};
  bool operator==(const AddSymlink&) const = default;
};

struct RemoveName {
  FileId parent;
  std::string name;
  bool directory = false;
  std::int64_t now_ns = 0;
  bool mirror = false;
  Caller caller{};
  bool operator==(const RemoveName&) const = default;
};

struct RenameName {
  FileId from_parent;
  std::string from_name;
  FileId to_parent;
  std::string to_name;
  bool no_replace = false;
  bool exchange = false;
  std::int64_t now_ns = 0;
  bool mirror = false;
  Caller caller{};
  bool operator==(const RenameName&) const = default;
};

struct ChangeAttributes {
  msg::SetAttributes change;
  std::int64_t now_ns = 0;
  bool mirror = false;
  Caller caller{};
  bool operator==(const ChangeAttributes&) const = default;
};

struct ChangeXattr {
  msg::SetXattr change;
  std::int64_t now_ns = 0;
  Caller caller{};
  bool operator==(const ChangeXattr&) const = default;
};

/// Changes a folder's settings, which apply to images there and in subfolders.
struct SetPolicy {
  FileId directory;
  Policy changes;
  std::int64_t now_ns = 0;
  Caller caller{};
  bool operator==(const SetPolicy&) const = default;
};

/// The symbolic link in a folder that names its newest complete set.
inline constexpr const char* kLatestName = "latest";

/// A set that is whole in the drain directory, even if the pool has removed it.
struct DrainedSet {
  std::string name;
  std::uint64_t sequence = 0;  ///< sequence of its newest commit, which orders the sets of a folder
  bool operator==(const DrainedSet&) const = default;
};

/// Changes the link `latest` of a folder to its newest complete set. `id` is for the link if it
/// must be created; an empty target removes the link. `drained`, if not empty, is another set that
/// is whole in the drain directory. In older journals it has no sequence: then the link in the
/// drain directory names it until another set follows.
struct SetLatest {
  FileId directory;
  FileId id;
  std::string target;
  DrainedSet drained;
  std::int64_t now_ns = 0;
  bool operator==(const SetLatest&) const = default;
};

/// From now on the drain directory may have a file under this file's name. The set that this image
/// belongs to is no longer whole there.
struct DrainStarted {
  FileId file;
  bool operator==(const DrainStarted&) const = default;
};

/// The version is in the drain directory, durable and verified.
struct Drained {
  FileId file;
  Version version = 0;
  bool operator==(const Drained&) const = default;
};

/// The drain directory no longer has that version as it was drained: somebody has removed or
/// changed the file. It must be drained again.
struct DrainLost {
  FileId file;
  Version version = 0;
  bool operator==(const DrainLost&) const = default;
};

/// Gives up the copies of the chunks of these slices. Rule M5: only of drained chunks.
struct Evict {
  FileId file;
  Version version = 0;
  std::vector<std::uint32_t> slices;
  bool operator==(const Evict&) const = default;
};

/// The oldest change of the mirror queue, which has this number, was repeated or given up.
struct Mirrored {
  std::uint64_t sequence = 0;
  bool operator==(const Mirrored&) const = default;
};

/// Chunks have moved within their arena, by compaction.
struct MoveChunks {
  struct Move {
    std::uint64_t from_offset = 0;
    std::uint64_t to_offset = 0;
    bool operator==(const Move&) const = default;
  };
  BenefactorId benefactor;
  std::vector<Move> moves;
  bool operator==(const MoveChunks&) const = default;
};

/// Adds or drops copies of chunks: copies that were made and proven, or given up. A change does
/// nothing when its chunk is gone or has no copy `at` that place.
struct ChangeCopies {
  struct Change {
    Extent at;  ///< an existing copy; `name` and `length` are the chunk's
    ChunkName name;
    std::uint32_t length = 0;
    Extent add;   ///< without a benefactor: adds no copy
    Extent drop;  ///< without a benefactor: drops no copy; never the last copy
    bool operator==(const Change&) const = default;
  };
  std::vector<Change> changes;
  bool operator==(const ChangeCopies&) const = default;
};

/// Forms stripes of these chunks, whose parity was made and proven. A data chunk that the
/// table lacks is added although no version uses it, because the parity covers it. A chunk
/// that is in a stripe leaves it for the new one, and the earlier stripe ends. Snapshots
/// contain this command, too.
struct MakeStripes {
  struct Stripe {
    std::vector<Chunk> data;  ///< found by name and length, or by a copy
    std::vector<Chunk> parity;
    bool operator==(const Stripe&) const = default;
  };
  std::vector<Stripe> stripes;
  bool operator==(const MakeStripes&) const = default;
};

/// Restores a whole file, from a snapshot or found in the drain directory of a new pool. Parents
/// come first.
struct RestoreFile {
  Attributes attributes;
  FileId parent;
  std::string name;
  std::string target;  ///< of a symbolic link
  Xattrs xattrs;
  ChunkMap map;
  bool drained = false;
  bool evicted = false;
  bool in_drain = false;
  bool stale_in_drain = false;
  std::uint64_t sequence = 0;            ///< order of the commits
  Policy policy;                         ///< of a directory
  std::uint32_t copies = 0;              ///< a packed Redundancy, for each chunk
  std::uint64_t opened = 0;              ///< as in CommitVersion
  std::uint64_t written = 0;             ///< as in VersionData; 0: as `sequence`
  std::vector<DrainedSet> drained_sets;  ///< of a directory
  bool operator==(const RestoreFile&) const = default;
};

/// Ends generations of an application's sets: of all sets in a folder, or of single ones. Later
/// commits do not complete what was written before the commit `ended`, or by a session opened
/// before it. `whole` is the number of images with which a single set was found whole.
/// SetGenerations explains the terms; 0 changes nothing. Snapshots contain this command, too.
struct BeginGeneration {
  struct Set {
    std::uint64_t timestep = 0;
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    std::uint64_t whole = 0;
    bool operator==(const Set&) const = default;
  };
  FileId directory;
  std::string application;
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  std::vector<Set> sets;
  bool operator==(const BeginGeneration&) const = default;
};

/// Totals of committed and drained files with names since the pool began, including files removed
/// since. msg::PoolTotals defines the figures.
struct History {
  std::uint64_t images = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t drained_images = 0;
  std::uint64_t drained_bytes = 0;
  bool operator==(const History&) const = default;
};

/// The number of commands in an epoch. The first epoch of a pool also counts the commands before
/// it, which restore files from the drain directory.
struct EpochRecords {
  Epoch epoch;
  std::uint64_t records = 0;
  bool operator==(const EpochRecords&) const = default;
};

/// Ends a snapshot. In snapshots older than the field `epochs` it comes first.
struct RestoreCounters {
  Epoch epoch;
  std::uint64_t sequence = 0;
  std::uint64_t mirror_sequence = 0;
  History history{};
  std::vector<EpochRecords> epochs{};  ///< the epochs of the present block
  bool operator==(const RestoreCounters&) const = default;
};

struct RestoreMirror {
  std::uint64_t sequence = 0;
  msg::MirrorChange change;
  bool operator==(const RestoreMirror&) const = default;
};

/// Restores DoneCalls from a snapshot: `calls` of the client were executed; whether other calls up
/// to `forgotten` were is unknown. A final command without calls covers all other clients up to
/// `client`: whether their calls up to `forgotten` were executed is unknown.
struct RestoreCalls {
  ClientId client;
  std::uint64_t forgotten = 0;
  std::vector<std::uint64_t> calls;
  bool operator==(const RestoreCalls&) const = default;
};

/// In the order of the journal's numbers: new commands go to the end.
using AnyCommand =
    std::variant<BeginEpoch, AddBenefactor, CommitVersion, AddDirectory, AddSymlink, RemoveName,
                 RenameName, ChangeAttributes, ChangeXattr, DrainStarted, Drained, Evict, Mirrored,
                 MoveChunks, RestoreFile, RestoreCounters, RestoreMirror, SetPolicy, SetLatest,
                 ChangeCopies, MakeStripes, BeginGeneration, DrainLost, RestoreCalls>;
using Command = OneOf<AnyCommand>;

}  // namespace stdchk::manager
