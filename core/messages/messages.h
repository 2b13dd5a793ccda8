#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/one_of.h"
#include "core/policy.h"
#include "core/result.h"
#include "core/types.h"

/// The messages of stdchk as plain values. The wire form is core/messages/stdchk.capnp; the codec
/// (core/messages/codec.h) is the only code that sees Cap'n Proto. docs/protocol.md tells who sends
/// what when.
namespace stdchk::msg {

/// A RequestKind says whether a request may be sent again, and under which client number.
/// Each request declares its kind; a request without a kind does not compile.
enum class RequestKind : std::uint8_t {
  /// Changes nothing that outlives the client: asked again under the client's number of now.
  kAsks,
  /// Starts or looks at something. Done twice it is as done once: asked again like kAsks.
  kInstructs,
  /// Opens a session. A session ends with the client number that opened it, so that the request
  /// is asked again like kAsks.
  kOpens,
  /// Changes names, attributes, or what a folder asks for: done once. A later manager knows it by
  /// the client's number of then and the call (docs/decisions/0032).
  kChangesNames,
  /// Changes what a session has: done once, and never under another number than the session's.
  kOfSession,
  /// Uses a pin or a session of the client: may be done again, under the same number only.
  kOfClient,
  kOfLease,       ///< a client says that it is there, or that it ends
  kOfMember,      ///< who registers, or is a member that is no client
  kToBenefactor,  ///< not for a manager
};

// ---- membership -------------------------------------------------------------------------------

enum class BenefactorState : std::uint8_t { kAlive = 1, kSilent = 2, kGone = 3 };

/// A benefactor as clients see it.
struct BenefactorInfo {
  BenefactorId id;
  std::vector<std::string> addresses;  ///< one for each transport, the best first
  std::string host_token;              ///< equal tokens: shared memory works between the two
  std::string host_name;
  std::uint64_t arena_bytes = 0;
  std::uint64_t free_bytes = 0;
  BenefactorState state = BenefactorState::kAlive;
  std::int64_t pid = 0;
  // How the receiver, and nobody else, proves itself to the benefactor. Empty where it opens no
  // links to it, and in compositions where links prove nothing.
  std::string member;               ///< the benefactor's member id
  std::uint64_t ticket_number = 0;  ///< the client number to attach under
  std::string ticket_key;           ///< of links under that number
  bool operator==(const BenefactorInfo&) const = default;
};

/// What holds for the whole pool; set when it is started.
struct PoolConfig {
  std::uint32_t chunk_bytes = 0;
  std::uint32_t stripe_width = 0;
  Naming naming = Naming::kAuto;
  std::string drain_directory;               ///< absolute; empty: there is none
  std::uint64_t drain_rate_bytes_per_s = 0;  ///< of each benefactor; 0: not limited
  bool content_cuts = false;                 ///< with `naming`: chunks end where their content says
  /// The number of a Redundancy (core/redundancy.h), where nothing else is asked for; 0: one copy.
  std::uint32_t copies = 0;
  bool operator==(const PoolConfig&) const = default;
};

struct RegisterClient {
  static constexpr const char* kName = "register client";
  static constexpr RequestKind kKind = RequestKind::kOfMember;
  std::string host_token;
  std::string host_name;
  std::int64_t pid = 0;
  std::string role;  ///< "mount", "tool", "library"
  /// After a lost link: the number it had. Kept, with sessions and pins, while its lease lasts;
  /// otherwise the reply tells a new one, and everything of the old one has ended.
  ClientId resume;
  Epoch newest_epoch;  ///< the highest that it has heard of
  /// As the reply that gave it `resume` has told. Without it the two above count as none.
  std::string proof;
  struct Reply {
    ClientId client;
    Epoch epoch;
    PoolConfig config;
    std::vector<BenefactorInfo> benefactors;
    std::string proof;  ///< that this member was given this number
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const RegisterClient&) const = default;
};

/// What a client's writes have come to since it began. Each number only grows, so that a report
/// that is lost, or comes twice, changes nothing.
struct WriterTotals {
  ClientId first;  ///< the first number that it had: it stays when the client gets another one
  std::uint64_t closed_bytes = 0;      ///< whose close, or other commit, has returned (OT)
  std::uint64_t open_to_close_ns = 0;  ///< of all those files together
  std::uint64_t committed_bytes = 0;   ///< that are committed (AT)
  std::uint64_t open_to_commit_ns = 0;
  std::uint64_t longest_call_ns = 0;  ///< of one write, fsync or close
  std::uint64_t named_bytes = 0;      ///< of chunks that got a name
  std::uint64_t equal_bytes = 0;      ///< of those, what was there already
  std::uint64_t naming_ns = 0;        ///< of a processor, for the names
  bool operator==(const WriterTotals&) const = default;
};

/// What files' readers have got from a client since it began, by where it came from. The first
/// reading of what was fetched is of there, any further one of the cache. Each number only grows.
struct ReaderTotals {
  std::uint64_t pool_bytes = 0;     ///< from benefactors, or made from stripes
  std::uint64_t cached_bytes = 0;   ///< that had been read before
  std::uint64_t drained_bytes = 0;  ///< from the drain directory
  bool operator==(const ReaderTotals&) const = default;
};

/// Renews the client's lease and those of all its sessions and pins.
struct ClientHeartbeat {
  static constexpr const char* kName = "client heartbeat";
  static constexpr RequestKind kKind = RequestKind::kOfLease;
  ClientId client;
  WriterTotals totals{};
  ReaderTotals reads{};
  std::uint64_t reader_count = 0;  ///< files that are open for reading, each as often as it is
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ClientHeartbeat&) const = default;
};

/// The client ends: its sessions are aborted, its pins released.
struct GoodbyeClient {
  static constexpr const char* kName = "goodbye";
  static constexpr RequestKind kKind = RequestKind::kOfLease;
  ClientId client;
  WriterTotals totals{};  ///< the last that is said of it
  ReaderTotals reads{};
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GoodbyeClient&) const = default;
};

struct ListBenefactors {
  static constexpr const char* kName = "list benefactors";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  struct Reply {
    std::vector<BenefactorInfo> benefactors;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ListBenefactors&) const = default;
};

struct RegisterBenefactor {
  static constexpr const char* kName = "register benefactor";
  static constexpr RequestKind kKind = RequestKind::kOfMember;
  std::uint64_t life_high = 0;  ///< random bits made when the arena was: name this life of it
  std::uint64_t life_low = 0;   ///< made of these and the member's key
  std::vector<std::string> addresses;
  std::string host_token;
  std::string host_name;
  std::uint64_t arena_bytes = 0;
  std::int64_t pid = 0;
  Epoch newest_epoch;               ///< the highest that it has heard of
  std::uint64_t log_bytes_max = 0;  ///< of a metadata log that it can keep; 0: it keeps none
  Epoch log_epoch;                  ///< of the whole log that it has; none: it has none
  std::uint64_t log_sequence = 0;   ///< of that log's newest record
  /// Of the newest record, of `newest_epoch`, that it knows to have been answered.
  std::uint64_t newest_sequence = 0;
  BenefactorId benefactor;  ///< that it was in `newest_epoch`; none: it is new
  /// Of these three, as a reply has told. Without it they count as none, and so does the log.
  std::string proof;
  struct Reply {
    BenefactorId benefactor;
    Epoch epoch;
    ClientId first_client;  ///< smaller ids are of earlier epochs: they may not attach any more
    PoolConfig config;
    std::string proof;  ///< that this member was told of `benefactor` and `epoch`
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const RegisterBenefactor&) const = default;
};

struct BenefactorHeartbeat {
  static constexpr const char* kName = "benefactor heartbeat";
  static constexpr RequestKind kKind = RequestKind::kOfMember;
  BenefactorId benefactor;
  bool leaving = false;  ///< it wants to end: what only it has is copied elsewhere first
  struct Reply {
    bool may_go = false;             ///< nothing is left that could be copied elsewhere
    std::uint64_t log_sequence = 0;  ///< of the newest record that was answered in this epoch
    std::string proof;               ///< that this member was told of that record
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const BenefactorHeartbeat&) const = default;
};

/// From a manager's standby, on a link of its own, again and again. The first one makes it the
/// standby; another one is refused then (kExists).
struct FollowManager {
  static constexpr const char* kName = "follow";
  static constexpr RequestKind kKind = RequestKind::kOfMember;
  std::string address;     ///< where the standby takes links
  Epoch newest_epoch;      ///< the highest that it has heard of, or its own
  std::uint64_t seen = 0;  ///< `number` of the newest reply that it has, of that epoch
  struct Reply {
    Epoch epoch;
    std::uint64_t number = 0;
    /// More than half of them must have lost the manager before the standby takes over.
    std::vector<BenefactorId> keepers;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const FollowManager&) const = default;
};

// ---- names and attributes ---------------------------------------------------------------------

struct Lookup {
  static constexpr const char* kName = "lookup";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  ClientId client;
  FileId parent;
  std::string name;
  struct Reply {
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Lookup&) const = default;
};

struct GetAttributes {
  static constexpr const char* kName = "getattr";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  ClientId client;
  FileId file;
  struct Reply {
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetAttributes&) const = default;
};

struct DirectoryEntry {
  std::string name;
  Attributes attributes;
  bool operator==(const DirectoryEntry&) const = default;
};

/// Entries in the order of their names, those after `after`. The client watches the directory from
/// then on: it is told of changes.
struct ReadDirectory {
  static constexpr const char* kName = "readdir";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  ClientId client;
  FileId directory;
  std::string after;  ///< empty: from the first
  struct Reply {
    std::vector<DirectoryEntry> entries;
    bool more = false;
    FileId parent;  ///< of the directory itself
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ReadDirectory&) const = default;
};

enum class SetMask : std::uint32_t {
  kMode = 1,
  kUid = 2,
  kGid = 4,
  kAtime = 8,
  kMtime = 16,
};

struct SetAttributes {
  static constexpr const char* kName = "setattr";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId file;
  std::uint32_t mask = 0;  ///< SetMask bits
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t atime_ns = 0;
  std::int64_t mtime_ns = 0;
  struct Reply {
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const SetAttributes&) const = default;
};

struct MakeDirectory {
  static constexpr const char* kName = "mkdir";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId parent;
  std::string name;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  struct Reply {
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const MakeDirectory&) const = default;
};

struct MakeSymlink {
  static constexpr const char* kName = "symlink";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId parent;
  std::string name;
  std::string target;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  struct Reply {
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const MakeSymlink&) const = default;
};

struct ReadSymlink {
  static constexpr const char* kName = "readlink";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  FileId file;
  struct Reply {
    std::string target;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ReadSymlink&) const = default;
};

/// Removes a file's name (directory = false) or an empty directory. The content of a file that has
/// sessions or pins stays until the last of them ends.
struct Remove {
  static constexpr const char* kName = "remove";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId parent;
  std::string name;
  bool directory = false;
  struct Reply {
    FileId file;
    Attributes directory;  ///< where the name was, as it is now; no id: nothing durable has changed
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Remove&) const = default;
};

struct Rename {
  static constexpr const char* kName = "rename";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId from_parent;
  std::string from_name;
  FileId to_parent;
  std::string to_name;
  bool no_replace = false;
  bool exchange = false;
  struct Reply {
    FileId replaced;  ///< the file that lost its name; none: there was none
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Rename&) const = default;
};

enum class XattrMode : std::uint8_t { kEither = 0, kCreate = 1, kReplace = 2 };

struct SetXattr {
  static constexpr const char* kName = "setxattr";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId file;
  std::string name;
  std::string value;  ///< any bytes
  XattrMode mode = XattrMode::kEither;
  bool remove = false;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const SetXattr&) const = default;
};

struct GetXattrs {
  static constexpr const char* kName = "getxattr";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  FileId file;
  struct Reply {
    std::vector<std::pair<std::string, std::string>> attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetXattrs&) const = default;
};

/// What a folder asks for, and what holds for a file.
struct GetPolicy {
  static constexpr const char* kName = "get policy";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  FileId file;
  struct Reply {
    Policy own;        ///< what the folder itself sets
    Policy effective;  ///< what holds: its own, then those above it, then the pool's
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetPolicy&) const = default;
};

/// Changes what a folder asks for; a value of kPolicyInherit removes a setting.
struct SetPolicy {
  static constexpr const char* kName = "set policy";
  static constexpr RequestKind kKind = RequestKind::kChangesNames;
  ClientId client;
  FileId directory;
  Policy changes;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const SetPolicy&) const = default;
};

/// The sets A.*.Tj of a folder, the newest first.
struct ListSets {
  static constexpr const char* kName = "list sets";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  FileId directory;
  struct Entry {
    std::string application;
    std::uint64_t timestep = 0;
    std::uint64_t images = 0;
    std::uint64_t drained = 0;  ///< images
    std::uint64_t bytes = 0;
    std::int64_t newest_ns = 0;
    bool complete = false;
    bool pinned = false;
    bool latest = false;
    bool operator==(const Entry&) const = default;
  };
  struct Reply {
    std::uint64_t images_wanted = 0;  ///< of a whole set; 0: not known
    std::vector<Entry> sets;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ListSets&) const = default;
};

/// Starts a pass over all content, or asks how far it is.
struct Scrub {
  static constexpr const char* kName = "scrub";
  static constexpr RequestKind kKind = RequestKind::kInstructs;
  bool start = false;
  struct Reply {
    bool running = false;
    std::uint64_t passes = 0;            ///< whole ones in this epoch
    std::uint64_t checked_bytes = 0;     ///< in this epoch
    std::uint64_t pass_bytes = 0;        ///< checked in the current or last pass
    std::uint64_t wrong_chunks = 0;      ///< found in this epoch
    std::uint64_t repaired_chunks = 0;   ///< made again from another copy
    std::uint64_t rate_bytes_per_s = 0;  ///< of each benefactor; 0: it does not run by itself
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Scrub&) const = default;
};

/// What the report card of a pool says, since the pool began. Docs: docs/operating.md, Report card.
struct PoolTotals {
  // These survive a restart of the manager.
  std::uint64_t images = 0;         ///< files that came to have bytes, or were written anew
  std::uint64_t written_bytes = 0;  ///< of all committed versions, what was written
  std::uint64_t stored_bytes = 0;   ///< of those, what was not there already
  std::uint64_t drained_images = 0;
  std::uint64_t drained_bytes = 0;
  // The rest is of this life of the manager, but for clients, who tell each one all.
  WriterTotals writers;          ///< of all together; `first` is none
  ReaderTotals readers;          ///< of all together
  std::uint64_t at_risk_ns = 0;  ///< time with an image that one lost benefactor would take along
  std::uint64_t sets = 0;        ///< that were followed by another one of their application
  std::uint64_t sets_overtaken = 0;    ///< of those, not drained when the next one came
  std::uint64_t space_waits = 0;       ///< writers that had to wait for room
  std::uint64_t space_wait_ns = 0;     ///< all together
  std::uint32_t fullest_permille = 0;  ///< of the lent memory, at the fullest moment
  bool operator==(const PoolTotals&) const = default;
};

struct StatPool {
  static constexpr const char* kName = "statfs";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  struct Reply {
    std::uint64_t total_bytes = 0;
    std::uint64_t free_bytes = 0;       ///< not granted, not used
    std::uint64_t evictable_bytes = 0;  ///< used by drained images only
    std::uint64_t file_count = 0;
    std::uint64_t chunk_count = 0;
    std::uint64_t logical_bytes = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t drain_pending_files = 0;
    std::uint64_t drain_pending_bytes = 0;
    std::uint64_t drain_failed_files = 0;
    std::uint64_t session_count = 0;
    std::uint64_t client_count = 0;
    std::uint64_t requests_served = 0;
    Epoch epoch;
    std::int64_t pid = 0;
    std::uint64_t debt_chunks = 0;  ///< with fewer copies than they should have
    std::uint64_t debt_bytes = 0;   ///< of the copies that are still to be made
    std::uint64_t lost_chunks = 0;  ///< without a copy, and not drained
    std::uint64_t copies_made = 0;  ///< in this epoch
    std::uint64_t copied_bytes = 0;
    Scrub::Reply scrub;
    std::uint64_t stripes = 0;         ///< chunks that protect each other by parity
    std::uint64_t parity_bytes = 0;    ///< of those, beyond the chunks
    std::uint64_t rebuilt_chunks = 0;  ///< made again from their stripes, in this epoch
    std::uint32_t log_copies = 0;      ///< benefactors whose metadata log has all that was answered
    std::uint32_t log_copies_wanted = 0;
    std::string standby;           ///< its address; empty: there is none
    bool standby_follows = false;  ///< it was heard within kLease
    PoolTotals totals;
    std::uint64_t reader_count = 0;  ///< files that are open for reading, as clients last said
    std::uint64_t log_bytes = 0;     ///< of the longest metadata log on a benefactor
    /// Memory that a benefactor needs for its log and the one that takes its place.
    std::uint64_t log_bytes_needed = 0;
    std::uint64_t log_bytes_max = 0;    ///< the least that one of these benefactors has for logs
    std::uint32_t log_full = 0;         ///< benefactors whose memory for it was full
    std::uint32_t standby_keepers = 0;  ///< by more than half of whom the standby decides
    std::uint32_t standby_reached = 0;  ///< of them, those whose log is whole
    std::vector<std::string>
        log_advice;  ///< what endangers the metadata, and what to do; sentences
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const StatPool&) const = default;
};

// ---- sessions: writing ------------------------------------------------------------------------

/// Opens a session on a file, and makes the file first when `parent` is set. A file made so is
/// pending: only its client sees it until a commit. A second client that creates the same name
/// (without `exclusive`) joins the same pending file.
struct OpenSession {
  static constexpr const char* kName = "open";
  static constexpr RequestKind kKind = RequestKind::kOpens;
  ClientId client;
  FileId file;    ///< of an existing file; none: create
  FileId parent;  ///< create: the directory
  std::string name;
  bool exclusive = false;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool truncate = false;          ///< the first commit starts from an empty file
  std::uint64_t want_bytes = 0;   ///< grants to send along; 0: none
  std::uint32_t copies = 0;       ///< the number of a Redundancy; 0: as the folder or the pool says
  bool waits_for_copies = false;  ///< its close does, whatever the folder says
  struct Reply {
    SessionId session;
    bool created = false;
    Attributes attributes;
    std::vector<Grant> grants;
    FileId similar_file;  ///< the previous version of the series A.Ni: chunks to compare with
    Version similar_version = 0;
    Policy policy;             ///< what holds for the file now
    std::uint64_t opened = 0;  ///< the newest commit of the pool: for ResumeSession
    /// That each chunk is to be written to, in different domains of its grants; 0: one.
    std::uint32_t places = 0;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const OpenSession&) const = default;
};

/// Dedup look-up and placement in one call. Chunks answered as existing are held until the session
/// ends (rule M4).
struct Place {
  static constexpr const char* kName = "place";
  static constexpr RequestKind kKind = RequestKind::kOfClient;
  SessionId session;
  struct Wanted {
    ChunkName name;
    std::uint32_t length = 0;
    bool operator==(const Wanted&) const = default;
  };
  std::vector<Wanted> chunks;
  std::uint64_t want_bytes = 0;     ///< grants to send along
  std::vector<BenefactorId> avoid;  ///< a write to these has failed
  std::vector<GrantId> returned;    ///< not used and not known to any write in flight
  std::uint32_t unit_bytes = 0;     ///< the extent that each grant must have room for, at least
  /// The grants are for further places of chunks that are on these already, and are answered at
  /// once; none: for chunks that are nowhere yet.
  std::vector<BenefactorId> beside{};
  struct Existing {
    std::uint32_t index = 0;  ///< into `chunks` of the request
    Chunk chunk;
    bool operator==(const Existing&) const = default;
  };
  struct Reply {
    std::vector<Existing> existing;
    std::vector<Grant> grants;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Place&) const = default;
};

/// Applies the session's written ranges to the newest version of the file, all at once. A map too
/// long for one message goes ahead in parts with `last` = false; the part with `last` commits.
/// Parts carry an index so that a repeated one is known.
struct Commit {
  static constexpr const char* kName = "commit";
  static constexpr RequestKind kKind = RequestKind::kOfSession;
  SessionId session;
  std::uint32_t part = 0;
  bool last = true;
  ChunkMap written;  ///< slices of this part; their chunks lie in the session's grants,
                     ///< or were answered as existing
  // Of the last part only:
  bool set_size = false;         ///< the session truncated or extended: `size_bytes` is the size
  std::uint64_t size_bytes = 0;  ///< otherwise the size is the larger of this and the newest one
  bool cut_before = false;       ///< drop bytes of the base at and above `cut_bytes` first
  std::uint64_t cut_bytes = 0;   ///< (lowest size that the file had within the session)
  std::int64_t mtime_ns = 0;
  std::vector<Extent> abandoned;  ///< failed writes: not to be used again before a fence
  bool end = false;               ///< the session ends with this commit
  NamingState naming = NamingState::kUnknown;  ///< of what is written
  /// Not 0: what is written is all that this version has in the drain directory. It goes into
  /// memory; the file stays what it was, and drained. kStale when that version is not the newest,
  /// or not drained.
  Version same_as = 0;
  struct Reply {
    Attributes attributes;
    std::uint32_t conflicts = 0;  ///< slices of others that this commit overwrote since its base
    Attributes directory;         ///< of a file that this commit gave its name; otherwise no id
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Commit&) const = default;
};

/// After a registration with a manager of another epoch: goes on with a session of before, under
/// its number, with what is stored and not committed. Answered when the benefactors have found all
/// of that. In parts like Commit's. Comes when no write of the session is under way any more.
struct ResumeSession {
  static constexpr const char* kName = "resume";
  static constexpr RequestKind kKind = RequestKind::kOfSession;
  ClientId client;
  SessionId session;
  FileId file;
  FileId parent;  ///< the name of a file that had no version; none: it had one, or `renamed`
  std::string name;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Version base = 0;          ///< that the session goes out from; 0: none
  std::uint32_t copies = 0;  ///< as in OpenSession
  std::uint32_t part = 0;
  bool last = true;
  std::vector<Chunk> stored;        ///< by this session
  std::vector<Place::Wanted> held;  ///< chunks of the pool that it refers to
  bool truncated = false;           ///< its next commit starts from an empty file
  std::uint64_t opened = 0;         ///< as OpenSession was answered
  bool waits_for_copies = false;    ///< as in OpenSession
  // Of a file that had no version, what this client has changed: it holds whatever another client
  // says that has come before. In the first part.
  bool renamed = false;  ///< the name; no parent: it has none any more
  bool changed = false;  ///< attributes: mode, uid and gid, and these
  std::int64_t atime_ns = 0;
  std::int64_t mtime_ns = 0;
  std::vector<std::pair<std::string, std::string>> xattrs;
  struct Reply {
    bool committed =
        false;  ///< what is stored is the newest version already, which was not answered
    Attributes attributes;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ResumeSession&) const = default;
};

/// Ends a session; what was not committed is dropped. `writes_in_flight`: the client could not stop
/// its writes, the grants need a fence.
struct CloseSession {
  static constexpr const char* kName = "close";
  static constexpr RequestKind kKind = RequestKind::kOfSession;
  SessionId session;
  bool aborted = false;  ///< list the part under `stdchk ls --aborted`
  std::uint64_t aborted_bytes = 0;
  bool writes_in_flight = false;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const CloseSession&) const = default;
};

// ---- reading ----------------------------------------------------------------------------------

/// A page of a version's chunk map. The version is pinned for the client (its chunks stay) from the
/// first page until Unpin, goodbye, or the end of the client's lease.
struct GetMap {
  static constexpr const char* kName = "get map";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  ClientId client;
  FileId file;
  Version version = 0;  ///< 0: the newest
  std::uint64_t first_slice = 0;
  struct Reply {
    Attributes attributes;  ///< as of that version
    std::uint64_t slice_count = 0;
    ChunkMap page;
    std::string drained_path;  ///< relative to the drain directory; empty: not drained
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetMap&) const = default;
};

/// The other blocks of a chunk's stripe that can be read, for a client that cannot read the chunk:
/// as many of them as there is data make it again. They may move, or go, at any moment: only the
/// chunk's own checksum says that what was made is right.
struct GetStripe {
  static constexpr const char* kName = "get stripe";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  ClientId client;
  Extent at;  ///< a copy of the chunk; `name` and `length` are the chunk's
  ChunkName name;
  std::uint32_t length = 0;
  struct Block {
    std::uint32_t number = 0;
    std::uint32_t length = 0;
    Extent at;
    bool operator==(const Block&) const = default;
  };
  struct Reply {
    std::uint32_t data = 0;  ///< 0: the chunk is in no stripe
    std::uint32_t parity = 0;
    std::uint32_t number = 0;   ///< of the chunk itself
    std::vector<Block> blocks;  ///< data first
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetStripe&) const = default;
};

struct Unpin {
  static constexpr const char* kName = "unpin";
  static constexpr RequestKind kKind = RequestKind::kOfClient;
  ClientId client;
  FileId file;
  Version version = 0;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Unpin&) const = default;
};

/// A copy of a chunk of that version did not match when it was read: it is to be checked.
struct ReportWrongCopy {
  static constexpr const char* kName = "report wrong copy";
  static constexpr RequestKind kKind = RequestKind::kInstructs;
  ClientId client;
  FileId file;
  Version version = 0;
  Extent at;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ReportWrongCopy&) const = default;
};

// ---- drain and administration -----------------------------------------------------------------

/// Asks for the drain of all files, or of the files below one: they go to the head of the queue.
struct DrainNow {
  static constexpr const char* kName = "drain";
  static constexpr RequestKind kKind = RequestKind::kInstructs;
  FileId below;  ///< kRootFile: everything
  struct Reply {
    std::uint64_t pending_files = 0;
    std::uint64_t pending_bytes = 0;
    std::uint64_t failed_files = 0;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const DrainNow&) const = default;
};

struct ListAborted {
  static constexpr const char* kName = "list aborted";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  struct Entry {
    std::string path;
    std::uint64_t bytes = 0;
    std::int64_t when_ns = 0;
    std::string host_name;
    bool operator==(const Entry&) const = default;
  };
  struct Reply {
    std::vector<Entry> entries;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ListAborted&) const = default;
};

/// What copies a version still lacks.
struct GetDebt {
  static constexpr const char* kName = "get debt";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  FileId file;
  Version version = 0;
  struct Reply {
    std::uint64_t chunks = 0;
    std::uint64_t bytes = 0;
    bool impossible = false;  ///< there are fewer benefactors than copies
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const GetDebt&) const = default;
};

/// Has looked up whether files are in the drain directory as they were drained. What is not, and is
/// in memory, is pending again and is drained anew.
struct ConfirmDrained {
  static constexpr const char* kName = "confirm drained";
  static constexpr RequestKind kKind = RequestKind::kInstructs;
  std::vector<FileId> files;  ///< at most limits::kDrainChecksMax
  struct Reply {
    std::vector<std::uint32_t> undrained;  ///< indexes: not drained, or not there any more
    std::vector<std::uint32_t> missing;    ///< the others that somebody has removed or changed
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ConfirmDrained&) const = default;
};

/// Walks all metadata and counts again what is counted.
struct CheckMetadata {
  static constexpr const char* kName = "check";
  static constexpr RequestKind kKind = RequestKind::kAsks;
  struct Reply {
    std::vector<std::string> broken;  ///< a sentence for each broken rule; the first ones
    std::uint64_t broken_count = 0;
    std::uint64_t files = 0;
    std::uint64_t chunks = 0;
    std::uint64_t references = 0;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const CheckMetadata&) const = default;
};

/// Finds space that nothing uses and nobody may write to, and gives it back. Begins a round, in
/// which benefactors report their extents and forget those that nothing refers to.
struct CollectGarbage {
  static constexpr const char* kName = "gc";
  static constexpr RequestKind kKind = RequestKind::kInstructs;
  bool execute = false;     ///< false: only the plan
  std::uint64_t round = 0;  ///< not 0: begins nothing, and asks for that round
  struct Range {
    BenefactorId benefactor;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool operator==(const Range&) const = default;
  };
  /// What one benefactor has reported.
  struct Arena {
    BenefactorId benefactor;
    bool whole = false;                 ///< false: not all of the arena was looked at
    std::uint64_t garbage_extents = 0;  ///< that nothing refers to
    std::uint64_t garbage_bytes = 0;
    std::uint64_t forgotten_extents = 0;  ///< of those: they are no more
    std::uint64_t used_extents = 0;       ///< in space that chunks have
    std::uint64_t granted_extents = 0;    ///< of open sessions
    std::uint64_t waiting_extents = 0;    ///< until a client is fenced or the journal is durable
    std::uint64_t copying_extents = 0;    ///< in space that something is copied to
    std::uint64_t missing_extents = 0;    ///< places where a chunk should be, and no header is
    bool operator==(const Arena&) const = default;
  };
  struct Reply {
    std::vector<Range> leaked;  ///< the first ones
    std::uint64_t leaked_bytes = 0;
    std::uint64_t waiting_bytes = 0;  ///< kept until a client is fenced
    std::uint64_t granted_bytes = 0;  ///< of open sessions
    std::uint64_t used_bytes = 0;
    std::uint64_t free_bytes = 0;
    std::uint64_t round = 0;    ///< that was begun, or asked for
    bool ended = false;         ///< of the round: `arenas` is what came of it, or of a later one
    std::vector<Arena> arenas;  ///< the first ones
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const CollectGarbage&) const = default;
};

// ---- manager to benefactor --------------------------------------------------------------------

/// Rule M3: no write of that client may change the arena after the answer `fenced`.
struct FenceClient {
  static constexpr const char* kName = "fence client";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  ClientId client;
  bool and_older = false;  ///< all clients with smaller numbers, too (those of earlier epochs)
  struct Reply {
    bool fenced = false;  ///< false: not yet, ask again
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const FenceClient&) const = default;
};

/// One piece of a file that this benefactor holds.
struct DrainPiece {
  std::uint64_t file_offset = 0;
  std::uint32_t length = 0;
  std::uint32_t chunk_offset = 0;
  std::uint64_t extent_offset = 0;
  std::uint32_t chunk_length = 0;
  std::uint32_t crc = 0;  ///< of the whole chunk
  ChunkName name;
  bool operator==(const DrainPiece&) const = default;
};

/// In DrainPiece::extent_offset: not in memory any more; copied from the range [file_offset, +
/// length) of DrainPieces::base_path instead (an earlier version of the file, drained and evicted).
inline constexpr std::uint64_t kNoExtent = ~std::uint64_t{0};

/// The folder of temporary files, in the drain directory, and what the file (file, number) is
/// called in it.
inline constexpr const char* kTemporaryFolder = ".stdchk-drain";
inline std::string temporary_name(FileId file, std::uint64_t number) {
  return std::to_string(file.value) + "." + std::to_string(number);
}

/// Writes pieces into the temporary file of (file, number), makes them durable, reads them back
/// and compares. Answered when done; pieces of one request are at most kMapPageSlicesMax. Each
/// attempt to drain a file has a number of its own, so that what comes late changes nothing else.
struct DrainPieces {
  static constexpr const char* kName = "drain pieces";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  FileId file;
  std::uint64_t number = 0;
  std::string base_path;  ///< relative to the drain directory; for pieces with kNoExtent only
  std::vector<DrainPiece> pieces;
  struct Reply {
    std::vector<std::uint32_t> corrupt;  ///< indexes of pieces whose chunk fails its checksum
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const DrainPieces&) const = default;
};

/// Gives the temporary file its size, attributes and name (rule M6), replacing what was there.
struct DrainFinish {
  static constexpr const char* kName = "drain finish";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  FileId file;
  std::uint64_t number = 0;
  std::string path;  ///< relative to the drain directory
  std::uint64_t size_bytes = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const DrainFinish&) const = default;
};

/// No user has this number (chown(2) takes it for "as it is").
inline constexpr std::uint32_t kUnknownUid = 0xffffffff;

/// Looks whether files are in the drain directory as DrainFinish has left them: regular files with
/// that size and that time of their last change, where the storage keeps such times.
struct FindDrained {
  static constexpr const char* kName = "find drained";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  struct Wanted {
    std::string path;  ///< relative to the drain directory
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;
    std::uint32_t uid = kUnknownUid;  ///< the owner in the pool
    bool operator==(const Wanted&) const = default;
  };
  std::vector<Wanted> files;  ///< at most limits::kDrainChecksMax
  struct Reply {
    std::vector<std::uint32_t> missing;  ///< indexes: not there, or something else
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const FindDrained&) const = default;
};

enum class MirrorKind : std::uint8_t {
  kRename = 1,
  kUnlink = 2,
  kMakeDirectory = 3,
  kRemoveDirectory = 4,
  kSymlink = 5,
  kAttributes = 6,
  /// The temporary file of (file, number). Without a file: all that nobody uses any more, which
  /// are those of earlier epochs than that of `number`, and those of the mirror queue below its
  /// number; the epoch is in the upper 24 bits, 0 for the mirror queue.
  kDropTemporary = 7,
  /// Gives the file a second name, that of the temporary file (file, number), so that it can be
  /// read when another one has its path or none has.
  kSetAside = 8,
};

/// Repeats a change of the namespace in the drain directory. What is there already is no error.
struct MirrorChange {
  static constexpr const char* kName = "mirror change";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  MirrorKind kind = MirrorKind::kRename;
  std::string path;
  /// Rename: the new path; symlink: the target. In a rename an empty path, here or above, is the
  /// temporary file (file, number).
  std::string other_path;
  FileId file;
  std::uint64_t number = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
  /// Attributes: the owner before the change. A file there of any other owner than these two is not
  /// the drained one.
  std::uint32_t uid_before = kUnknownUid;
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const MirrorChange&) const = default;
};

/// Copies extents inside the arena (compaction): checks each against its crc, answers which failed.
struct MoveExtents {
  static constexpr const char* kName = "move extents";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  struct Move {
    std::uint64_t from_offset = 0;
    std::uint64_t to_offset = 0;
    std::uint32_t length = 0;  ///< of the content; the header moves along
    std::uint32_t crc = 0;
    bool operator==(const Move&) const = default;
  };
  std::vector<Move> moves;
  struct Reply {
    std::vector<std::uint32_t> failed;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const MoveExtents&) const = default;
};

/// Reads extents of another benefactor into the own arena and checks them there: a copy is proven
/// by its checksum at the target. Requests are answered in their order; after an answer, the last
/// one included, nothing of an earlier request changes the arena any more.
struct CopyExtents {
  static constexpr const char* kName = "copy extents";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  ClientId client;  ///< the number to attach under
  BenefactorInfo source;
  struct Copy {
    std::uint64_t from_offset = 0;
    std::uint64_t to_offset = 0;
    std::uint32_t length = 0;  ///< of the content; the header goes along
    std::uint32_t crc = 0;
    ChunkName name;
    bool operator==(const Copy&) const = default;
  };
  std::vector<Copy> copies;
  struct Reply {
    std::vector<std::uint32_t> failed;   ///< indexes of copies: the source could not be read
    std::vector<std::uint32_t> corrupt;  ///< what came is not that chunk
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const CopyExtents&) const = default;
};

/// Makes blocks of a stripe from others of it, in the own arena (core/erasure.h): parity from data,
/// or what was lost from what is left. Inputs are read by one-sided transfers and checked; an
/// output is a whole extent. Requests are answered in their order; after an answer, also that to a
/// request without outputs, nothing of an earlier request changes the arena any more.
struct BuildStripe {
  static constexpr const char* kName = "build stripe";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  struct Input {
    std::uint32_t number = 0;  ///< of the block in the stripe
    std::uint32_t source = 0;  ///< index into `sources`
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t crc = 0;
    bool operator==(const Input&) const = default;
  };
  struct Output {
    std::uint32_t number = 0;
    std::uint64_t to_offset = 0;
    std::uint32_t length = 0;
    ChunkName name;
    bool operator==(const Output&) const = default;
  };
  ClientId client;  ///< the number to attach under
  std::uint32_t data = 0;
  std::uint32_t parity = 0;
  std::vector<BenefactorInfo> sources;
  std::vector<Input> inputs;    ///< as many as there is data
  std::vector<Output> outputs;  ///< none: only the answer is wanted
  struct Reply {
    std::vector<std::uint32_t> failed;   ///< indexes of inputs that could not be read
    std::vector<std::uint32_t> corrupt;  ///< that are not what they should be
    std::vector<std::uint32_t> crcs;     ///< of the outputs; none when an input was not there
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const BuildStripe&) const = default;
};

/// Looks whether these chunks are there, whole (scrub).
struct CheckExtents {
  static constexpr const char* kName = "check extents";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  struct Checked {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t crc = 0;
    ChunkName name;
    bool operator==(const Checked&) const = default;
  };
  std::vector<Checked> extents;
  struct Reply {
    std::vector<std::uint32_t> corrupt;  ///< indexes of extents
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const CheckExtents&) const = default;
};

/// A header of an extent, as a benefactor sees it in its arena.
struct FoundExtent {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;      ///< of the content, as the header says
  std::uint32_t header_crc = 0;  ///< CRC32C of the header's bytes, which tells it from another one
  bool operator==(const FoundExtent&) const = default;
};

/// Which headers of extents are in a part of the arena: those of chunks, those that nothing refers
/// to any more, and what only looks like one in the content of a chunk.
struct ReportExtents {
  static constexpr const char* kName = "report extents";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  struct Reply {
    std::vector<FoundExtent> extents;  ///< ascending
    std::uint64_t end = 0;  ///< all from `begin` to here; before the request's with a full list
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ReportExtents&) const = default;
};

/// Clears these headers. Nobody has or is given the space that they are in until this is answered.
/// Requests are answered in their order, and after an answer, or on another link, nothing of an
/// earlier one changes the arena any more.
struct ForgetExtents {
  static constexpr const char* kName = "forget extents";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  std::vector<FoundExtent> extents;  ///< none: only the answer is wanted
  struct Reply {
    std::uint32_t forgotten = 0;  ///< the others were not there any more
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ForgetExtents&) const = default;
};

/// Bytes of the metadata log: the manager's journal, kept by benefactors so that a manager without
/// a disk can be rebuilt (rule M8). A log is a snapshot and the records after it, each with its
/// length in front (4 bytes, the low one first). It counts from the first request with a
/// `sequence`; until then the log of before does.
struct KeepLog {
  static constexpr const char* kName = "keep log";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  Epoch epoch;
  bool begins = false;         ///< a new log; what was begun and never became whole is forgotten
  std::uint64_t offset = 0;    ///< of `bytes` in the log
  std::uint64_t sequence = 0;  ///< of the newest record, which ends with `bytes`; 0: goes on
  std::string bytes;           ///< at most kLogPieceBytesMax
  struct Reply {
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const KeepLog&) const = default;
};

/// The log that counts, from `offset` on.
struct ReadLog {
  static constexpr const char* kName = "read log";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  std::uint64_t offset = 0;
  /// Nothing of an earlier epoch is kept from now on; none: asks for no promise.
  Epoch promise{};
  struct Reply {
    std::string bytes;
    bool more = false;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const ReadLog&) const = default;
};

// ---- client to benefactor ---------------------------------------------------------------------

/// The first message on a link to a benefactor. The reply tells the key of the arena.
struct Attach {
  static constexpr const char* kName = "attach";
  static constexpr RequestKind kKind = RequestKind::kToBenefactor;
  ClientId client;
  BenefactorId benefactor;
  struct Reply {
    std::uint64_t key = 0;
    std::uint64_t base = 0;
    std::uint64_t length = 0;
    bool operator==(const Reply&) const = default;
  };
  bool operator==(const Attach&) const = default;
};

// ---- notices: manager to client, no reply -----------------------------------------------------

/// What a client may have cached and is no longer so.
struct Invalidate {
  struct Entry {
    FileId directory;
    std::string name;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  std::vector<FileId> files;  ///< attributes changed or a new version was committed
  bool benefactors_changed = false;
  std::vector<SessionId> fenced;  ///< sessions that were ended by the manager
  bool operator==(const Invalidate&) const = default;
};

// ---- the envelope -----------------------------------------------------------------------------

/// All requests. The order is the wire's: new ones go to the end.
using AnyRequest =
    std::variant<RegisterClient, ClientHeartbeat, GoodbyeClient, ListBenefactors,
                 RegisterBenefactor, BenefactorHeartbeat, Lookup, GetAttributes, ReadDirectory,
                 SetAttributes, MakeDirectory, MakeSymlink, ReadSymlink, Remove, Rename, SetXattr,
                 GetXattrs, StatPool, OpenSession, Place, Commit, CloseSession, GetMap, Unpin,
                 DrainNow, ListAborted, FenceClient, DrainPieces, DrainFinish, MirrorChange,
                 MoveExtents, Attach, GetPolicy, SetPolicy, ListSets, CopyExtents, CheckExtents,
                 GetDebt, Scrub, CheckMetadata, CollectGarbage, BuildStripe, GetStripe, KeepLog,
                 ReadLog, ReportWrongCopy, FollowManager, ReportExtents, ForgetExtents,
                 ResumeSession, ConfirmDrained, FindDrained>;
using Request = OneOf<AnyRequest>;

namespace detail {
template <class M>
concept Classified = requires {
  { M::kKind } -> std::convertible_to<RequestKind>;
};
template <class V>
struct AllClassified;
template <class... R>
struct AllClassified<std::variant<R...>> : std::bool_constant<(Classified<R> && ...)> {};
static_assert(AllClassified<AnyRequest>::value, "a request declares its RequestKind as kKind");

template <class V>
struct RepliesOf;
template <class... R>
struct RepliesOf<std::variant<R...>> {
  using type = std::variant<typename R::Reply...>;
};
}  // namespace detail

/// It may be asked again, by whom it came from and under the number of now, also where it was sent
/// before.
constexpr bool may_ask_again(RequestKind kind) {
  return kind == RequestKind::kAsks || kind == RequestKind::kInstructs ||
         kind == RequestKind::kOpens;
}
inline RequestKind kind_of(const Request& request) {
  return std::visit([]<class M>(const M&) { return M::kKind; }, request);
}

/// All replies, at the same index as their request.
using AnyReply = detail::RepliesOf<AnyRequest>::type;
using Reply = OneOf<AnyReply>;

using Notice = std::variant<Invalidate>;

struct RequestEnvelope {
  std::uint64_t call_id = 0;      ///< of the sender; the reply carries it back
  std::uint32_t deadline_ms = 0;  ///< how long the sender waits from now on
  std::uint64_t sender = 0;       ///< client or benefactor number; with call_id it names a repeat
  Request body;
  bool operator==(const RequestEnvelope&) const = default;
};

struct ReplyEnvelope {
  std::uint64_t call_id = 0;
  Code code{};  ///< Code{}: success, and `body` holds
  std::int32_t os_errno = 0;
  std::uint32_t retry_after_ms = 0;  ///< back-off that the server asks for
  std::string detail;                ///< for people; may be empty
  Reply body;
  bool operator==(const ReplyEnvelope&) const = default;
};

struct NoticeEnvelope {
  Notice body;
  bool operator==(const NoticeEnvelope&) const = default;
};

using Envelope = std::variant<RequestEnvelope, ReplyEnvelope, NoticeEnvelope>;

}  // namespace stdchk::msg
