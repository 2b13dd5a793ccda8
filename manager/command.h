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

/// The commands that change the manager's durable state (rule M7). Everything that is not a
/// function of the state - times, ids, which copies a chunk has - is a field, so that applying the
/// same commands in the same order gives the same state. A field is never removed; journal.capnp
/// has the bytes.
namespace stdchk::manager {

using Xattrs = std::vector<std::pair<std::string, std::string>>;

/// Epochs of one line of managers are in one block of so many: a rebuilt manager begins the next
/// block, so that the one before it never has the same epoch, however often it is restarted.
inline constexpr std::uint64_t kEpochBlock = 256;
constexpr bool same_block(Epoch one, Epoch other) {
  return one.value / kEpochBlock == other.value / kEpochBlock;
}

/// The call by which a client has asked for a change: its completion record. Without a client:
/// nobody has.
struct Caller {
  ClientId client;
  std::uint64_t call = 0;
  bool operator==(const Caller&) const = default;
};

/// One life of the manager begins.
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

/// Where and how a pending file gets its name with its first commit.
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

/// A new version of a file: the newest map, cut at `cut_bytes` if `cut_before`, overlaid with
/// `written`, then sized. Copies of the chunks are resolved: they are what the table holds
/// afterwards.
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
  std::uint32_t copies = 0;  ///< the number of a Redundancy, for each chunk
  /// The newest commit of the pool when the session was opened; and of another one that is open
  /// and writes an image of the same set again, or 0.
  std::uint64_t opened = 0;
  std::uint64_t replacing = 0;
  NamingState naming = NamingState::kUnknown;  ///< of what is written
  /// Not 0: `written` is the content of that version, which is the newest and drained. The next one
  /// is the same, with these chunks; all but these, `copies` and `naming` says nothing.
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
  bool mirror = false;  ///< here and below: repeat the change in the drain directory
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

/// Changes what a folder asks for the images in it and below.
struct SetPolicy {
  FileId directory;
  Policy changes;
  std::int64_t now_ns = 0;
  Caller caller{};
  bool operator==(const SetPolicy&) const = default;
};

/// The symbolic link in a folder that names its newest complete set.
inline constexpr const char* kLatestName = "latest";

/// A set that is whole in the drain directory, also when the pool has removed it.
struct DrainedSet {
  std::string name;
  std::uint64_t sequence = 0;  ///< of its newest commit: orders the sets of a folder
  bool operator==(const DrainedSet&) const = default;
};

/// The newest complete set of a folder is another one: its link `latest` says so. `id` is the
/// link's when it is made; without a target it is removed. `drained` is one more set that is whole
/// in the drain directory; empty: there is none. Without a sequence, as in journals of before
/// there was one, the link there names it until it names another one.
struct SetLatest {
  FileId directory;
  FileId id;
  std::string target;
  DrainedSet drained;
  std::int64_t now_ns = 0;
  bool operator==(const SetLatest&) const = default;
};

/// From now on the drain directory may have something under this file's name. A set of which that
/// is an image is whole there no more.
struct DrainStarted {
  FileId file;
  bool operator==(const DrainStarted&) const = default;
};

/// That version is in the drain directory, durable and verified.
struct Drained {
  FileId file;
  Version version = 0;
  bool operator==(const Drained&) const = default;
};

/// That version is not in the drain directory any more as it was drained: somebody has removed or
/// changed the file. It is to be drained again.
struct DrainLost {
  FileId file;
  Version version = 0;
  bool operator==(const DrainLost&) const = default;
};

/// Gives up the copies of the chunks of these slices (rule M5: only of drained chunks).
struct Evict {
  FileId file;
  Version version = 0;
  std::vector<std::uint32_t> slices;
  bool operator==(const Evict&) const = default;
};

/// The oldest change of the mirror queue with this number was repeated, or given up.
struct Mirrored {
  std::uint64_t sequence = 0;
  bool operator==(const Mirrored&) const = default;
};

/// Chunks have moved within their arena (compaction).
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

/// Copies of chunks were made elsewhere, proven, or given up. A change whose chunk is not there any
/// more, or has no copy `at` that place, does nothing.
struct ChangeCopies {
  struct Change {
    Extent at;  ///< a copy that the chunk has; `name` and `length` are the chunk's
    ChunkName name;
    std::uint32_t length = 0;
    Extent add;   ///< no benefactor: none
    Extent drop;  ///< no benefactor: none; never the last copy
    bool operator==(const Change&) const = default;
  };
  std::vector<Change> changes;
  bool operator==(const ChangeCopies&) const = default;
};

/// Parity was made and proven: these chunks are stripes from now on. A data chunk that is not there
/// is one that nothing uses any more; it is added, because the parity is over it, too. Chunks that
/// are in a stripe leave it for the new one, and the earlier stripe ends. Of a snapshot, too.
struct MakeStripes {
  struct Stripe {
    std::vector<Chunk> data;  ///< found by name and length, or by a copy
    std::vector<Chunk> parity;
    bool operator==(const Stripe&) const = default;
  };
  std::vector<Stripe> stripes;
  bool operator==(const MakeStripes&) const = default;
};

/// A whole file, of a snapshot or found in the drain directory of a new pool. Parents come first.
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
  std::uint32_t copies = 0;              ///< the number of a Redundancy, for each chunk
  std::uint64_t opened = 0;              ///< as in CommitVersion
  std::uint64_t written = 0;             ///< of VersionData; 0: as `sequence`
  std::vector<DrainedSet> drained_sets;  ///< of a directory
  bool operator==(const RestoreFile&) const = default;
};

/// The generation of an application's sets has ended, of all in a folder or of single ones: what
/// was written before the commit `ended`, or by a session that was opened before it, is not
/// completed by later ones. Or single sets were found `whole`, with so many images. Of a snapshot,
/// too: SetGenerations has the words. 0 changes nothing.
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

/// What was committed and drained since the pool began, whatever has become of it since then. Of
/// files with names; msg::PoolTotals has the words.
struct History {
  std::uint64_t images = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t drained_images = 0;
  std::uint64_t drained_bytes = 0;
  bool operator==(const History&) const = default;
};

/// How many commands there were of an epoch. What a new pool finds in its drain directory comes
/// before its first epoch, and counts with that.
struct EpochRecords {
  Epoch epoch;
  std::uint64_t records = 0;
  bool operator==(const EpochRecords&) const = default;
};

/// The end of a snapshot. In one of before there were `epochs` it comes first.
struct RestoreCounters {
  Epoch epoch;
  std::uint64_t sequence = 0;
  std::uint64_t mirror_sequence = 0;
  History history{};
  std::vector<EpochRecords> epochs{};  ///< those of the block
  bool operator==(const RestoreCounters&) const = default;
};

struct RestoreMirror {
  std::uint64_t sequence = 0;
  msg::MirrorChange change;
  bool operator==(const RestoreMirror&) const = default;
};

/// Of a snapshot: those calls of a client were done, and of the ones up to `forgotten` nothing is
/// known. Without calls, after all others: so it is with calls up to `forgotten` of clients up to
/// this one that were not named.
struct RestoreCalls {
  ClientId client;
  std::uint64_t forgotten = 0;
  std::vector<std::uint64_t> calls;
  bool operator==(const RestoreCalls&) const = default;
};

/// The order is the journal's: new ones go to the end.
using AnyCommand =
    std::variant<BeginEpoch, AddBenefactor, CommitVersion, AddDirectory, AddSymlink, RemoveName,
                 RenameName, ChangeAttributes, ChangeXattr, DrainStarted, Drained, Evict, Mirrored,
                 MoveChunks, RestoreFile, RestoreCounters, RestoreMirror, SetPolicy, SetLatest,
                 ChangeCopies, MakeStripes, BeginGeneration, DrainLost, RestoreCalls>;
using Command = OneOf<AnyCommand>;

}  // namespace stdchk::manager
