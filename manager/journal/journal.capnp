@0xd3a4f1c5b7e90211;
# The commands that change the manager's durable state (rule M7). A field holds everything that is not a
# function of the state: times, ids, the copies of a chunk. So the same commands in the same order give the
# same state. docs/internals/schemas.md tells how to add a command or a field.

# The same file is the format of the journal: one Command is one record (docs/internals/formats.md). Rules for
# changes:
#
# - Fields and commands are only ever added, with the next free number. No field or command is removed or gets
#   another meaning.
# - A field that an older record lacks reads as 0, false or empty. A new field must use this value for the
#   behaviour of records without the field.
#
# The text order of fields is the order of the C++ members; the numbers are the journal's.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::manager::wire");

using Say = import "/core/schema/annotations.capnp";
using type = Say.type;
using items = Say.items;
using below = Say.below;
using presentIf = Say.presentIf;
using reserved = Say.reserved;
$Say.unlimited;
$Say.namespace("stdchk::manager");
$Say.include("<optional>");
$Say.include("core/messages/messages.h");
$Say.include("core/base/one_of.h");
$Say.include("core/values/types.h");

# ---- values of core/values/values.capnp and core/policy/policy.h, as the journal has them -----------

struct Extent $type("stdchk::Extent") {
  benefactor @0 :UInt64 $type("BenefactorId") $Say.required $below("kBenefactorsEnd");
  offset @1 :UInt64 $below("kOffsetsEnd");
}

struct Chunk $type("stdchk::Chunk") {
  name @0 :Data $type("stdchk::ChunkName") $presentIf("is_named()");
  length @1 :UInt32;
  crc @2 :UInt32;
  copies @3 :List(Extent);
}

struct Slice $type("stdchk::Slice") {
  fileOffset @0 :UInt64;
  length @1 :UInt32;
  chunkOffset @2 :UInt32;
  chunk @3 :UInt32;
}

struct Hole $type("stdchk::Hole") {
  offset @0 :UInt64;
  length @1 :UInt64;
}

struct ChunkMap $type("stdchk::ChunkMap") {
  chunks @0 :List(Chunk);
  slices @1 :List(Slice);
}

struct PolicySetting $type("stdchk::PolicySetting") {
  key @0 :UInt16 $type("PolicyKey");
  value @1 :UInt64;
}

struct Xattr $type("std::pair<std::string, std::string>") {
  name @0 :Data $Say.member("first");
  value @1 :Data $Say.member("second");
}

# ---- parts of commands -------------------------------------------------------------------------

struct Caller {
  # The call by which a client asked for a change: its completion record. Without a client: no client asked.
  client @0 :UInt64 $type("ClientId");
  call @1 :UInt64;
}

struct NewName {
  # The name that a pending file gets with its first commit, and its attributes.
  parent @0 :UInt64 $type("FileId");
  name @1 :Data;
  mode @2 :UInt32;
  uid @3 :UInt32;
  gid @4 :UInt32;
  atimeNs @5 :Int64;
  xattrs @6 :List(Xattr);
}

struct DrainedSet {
  # A set that is whole in the drain directory, even if the pool has removed it.
  name @0 :Data;
  sequence @1 :UInt64 $below("kCountsEnd");  # of its newest commit: orders the sets of a folder
}

# ---- commands ----------------------------------------------------------------------------------

struct AddBenefactor {
  id @0 :UInt64 $type("BenefactorId");
  lifeHigh @1 :UInt64;
  lifeLow @2 :UInt64;
  arenaBytes @3 :UInt64;
  hostName @4 :Data;
}

struct CommitVersion {
  # Commits a new version of a file. Its map is the newest map, cut at `cut_bytes` if `cut_before`, without the
  # bytes in `holes`, overlaid with `written`. Its size is `size_bytes` if `set_size`, otherwise at least that. The copies of each chunk
  # are those that the table holds afterwards.
  file @0 :UInt64 $type("FileId");
  create @1 :NewName $Say.optional;  # absent: the file already has its name
  cutBefore @2 :Bool;
  cutBytes @3 :UInt64;
  setSize @4 :Bool;
  sizeBytes @5 :UInt64;
  mtimeNs @6 :Int64;
  nowNs @7 :Int64;
  written @8 :ChunkMap;
  mirror @9 :Bool;
  copies @10 :UInt32;  # the number of a Redundancy, for each chunk
  opened @11 :UInt64;  # the newest commit of the pool when the session was opened
  replacing @12 :UInt64;
  # The value of `opened` of another open session that rewrites an image of the same set; 0: none does.
  naming @13 :UInt8 $type("NamingState");  # how the written chunks were named
  sameAs @14 :UInt64 $type("Version");
  # Not 0: puts drained bytes back into memory. `written` is the content of this version, which must be the
  # newest and drained. Only `written`, `copies`, `naming` and `homes` count then.
  homes @15 :List(UInt64) $Say.items("BenefactorId");
  # For each chunk of `written` the benefactor on its writer's node, if the image is placed by node; 0: none.
  # Chunks with equal names and different homes are different chunks. Shorter than the chunks: no more homes.
  partial @16 :Bool;  # the session goes on, and may write more of this member of a set (fsync)
  holes @17 :List(Hole);  # ascend, and do not overlap
}

struct AddDirectory {
  id @0 :UInt64 $type("FileId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data;
  target @3 :Data $reserved;  # of AddSymlink, which has the same numbers
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  nowNs @7 :Int64;
  mirror @8 :Bool;  # in all commands: repeat the change in the drain directory
  caller @9 :Caller $presentIf("client");
}

struct AddSymlink {
  id @0 :UInt64 $type("FileId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data;
  target @3 :Data;
  mode @4 :UInt32 $reserved;  # of AddDirectory, which has the same numbers
  uid @5 :UInt32;
  gid @6 :UInt32;
  nowNs @7 :Int64;
  mirror @8 :Bool;
  caller @9 :Caller $presentIf("client");
  held @10 :Bool;  # in all commands: the drain directory must not have the name before other files (NameHeld)
}

struct AddNode {
  # Adds a FIFO, a socket, or a device.
  id @0 :UInt64 $type("FileId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data;
  type @3 :UInt8 $type("FileType");
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  device @7 :UInt32;
  nowNs @8 :Int64;
  mirror @9 :Bool;
  caller @10 :Caller $presentIf("client");
}

struct AddLink {
  # Gives a file one more name.
  file @0 :UInt64 $type("FileId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data;
  nowNs @3 :Int64;
  mirror @4 :Bool;
  caller @5 :Caller $presentIf("client");
  held @6 :Bool;  # the file is drained again, and then gets all its names
}

struct RestoreLink {
  # A further name of a file, of a snapshot, or found in the drain directory. Its RestoreFile comes first.
  file @0 :UInt64 $type("FileId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data;
  inDrain @3 :Bool;
  staleInDrain @4 :Bool;
}

struct RemoveName {
  parent @0 :UInt64 $type("FileId");
  name @1 :Data;
  directory @2 :Bool;
  nowNs @3 :Int64;
  mirror @4 :Bool;
  caller @5 :Caller $presentIf("client");
}

struct RenameName {
  fromParent @0 :UInt64 $type("FileId");
  fromName @1 :Data;
  toParent @2 :UInt64 $type("FileId");
  toName @3 :Data;
  noReplace @4 :Bool;
  exchange @5 :Bool;
  nowNs @6 :Int64;
  mirror @7 :Bool;
  caller @8 :Caller $presentIf("client");
  counts @9 :Bool;  # a file that becomes a pointer counts as written now
  held @10 :Bool;
  # The drain directory must not have the new name yet: other files come before this marker or pointer. In
  # a renamed directory, its markers and pointers wait.
}

struct ChangeAttributes {
  change :group $type("stdchk::msg::SetAttributes") {
    # The request, without its client.
    file @0 :UInt64 $type("FileId");
    mask @1 :UInt32;
    mode @2 :UInt32;
    uid @3 :UInt32;
    gid @4 :UInt32;
    atimeNs @5 :Int64;
    mtimeNs @6 :Int64;
  }
  nowNs @7 :Int64;
  mirror @8 :Bool;
  caller @9 :Caller $presentIf("client");
}

struct ChangeXattr {
  change :group $type("stdchk::msg::SetXattr") {
    # The request, without its client.
    file @0 :UInt64 $type("FileId");
    name @1 :Data;
    value @2 :Data;
    mode @3 :UInt8 $type("msg::XattrMode");
    remove @4 :Bool;
  }
  nowNs @5 :Int64;
  caller @6 :Caller $presentIf("client");
  mirror @7 :Bool;  # the drain directory has no access lists, but gets the mode that goes with them
}

struct SetPolicy {
  # Changes a folder's settings, which apply to images there and in subfolders.
  directory @0 :UInt64 $type("FileId");
  changes @1 :List(PolicySetting) $type("Policy");
  nowNs @2 :Int64;
  caller @3 :Caller $presentIf("client");
}

struct SetLatest {
  # A folder has another newest complete set: its link `latest` names it.
  directory @0 :UInt64 $type("FileId");
  id @1 :UInt64 $type("FileId");  # of the link, when the command makes it
  target @2 :Data;                # empty: the link is removed
  drained :group $type("stdchk::manager::DrainedSet") {
    # Another set that is whole in the drain directory. Without a name: no set. Without a sequence, as in
    # older journals: the link in the drain directory names the set until it names another one.
    name @3 :Data;
    sequence @5 :UInt64 $below("kCountsEnd");
  }
  nowNs @4 :Int64;
}

struct Drained {
  # The version is in the drain directory, durable and verified.
  file @0 :UInt64 $type("FileId");
  version @1 :UInt64 $type("Version");
  slices @2 :List(UInt32) $reserved;  # of Evict, which has the same numbers
}

struct DrainLost {
  # Somebody has removed or changed the version's file in the drain directory. The version must be drained
  # again.
  file @0 :UInt64 $type("FileId");
  version @1 :UInt64 $type("Version");
  slices @2 :List(UInt32) $reserved;  # of Evict, which has the same numbers
}

struct Evict {
  # Gives up the copies of the chunks of these slices (rule M5: only of drained chunks).
  file @0 :UInt64 $type("FileId");
  version @1 :UInt64 $type("Version");
  slices @2 :List(UInt32);
}

struct MoveChunks {
  # Chunks have moved within their arena (compaction).
  struct Move {
    fromOffset @0 :UInt64 $below("kOffsetsEnd");
    toOffset @1 :UInt64 $below("kOffsetsEnd");
  }
  benefactor @0 :UInt64 $type("BenefactorId");
  moves @1 :List(Move);
}

struct ChangeCopies {
  # Copies of chunks were made elsewhere, proven, or given up. A change does nothing if its chunk is gone,
  # or has no copy at the place `at`.
  struct Change {
    at @0 :Extent;  # a copy that the chunk has; `name` and `length` are the chunk's
    name @1 :Data $type("stdchk::ChunkName") $presentIf("is_named()");
    length @2 :UInt32;
    add @3 :Extent $presentIf("benefactor");   # without a benefactor: none
    drop @4 :Extent $presentIf("benefactor");  # without a benefactor: none; the last copy stays
  }
  changes @0 :List(Change);
}

struct MakeStripes {
  # Forms stripes of these chunks, whose parity was made and proven. A data chunk that the table lacks is
  # added although no version uses it, because the parity covers it. A chunk that is in a stripe leaves it
  # for the new one, and the earlier stripe ends. Snapshots contain this command, too.
  struct Stripe {
    data @0 :List(Chunk);    # found by name and length, or by a copy
    parity @1 :List(Chunk);  # without names, with their copies
  }
  stripes @0 :List(Stripe);
}

struct RestoreFile {
  # A whole file, of a snapshot, or found in the drain directory of a new pool. Parents come first.
  attributes :group $type("stdchk::Attributes") {
    # Without link_count, stored_bytes, drain and copies, which follow from the rest.
    id @0 :UInt64 $type("FileId");
    type @1 :UInt8 $type("FileType");
    mode @2 :UInt32;
    uid @3 :UInt32;
    gid @4 :UInt32;
    sizeBytes @5 :UInt64;
    version @6 :UInt64 $type("Version");
    atimeNs @7 :Int64;
    mtimeNs @8 :Int64;
    ctimeNs @9 :Int64;
    naming @24 :UInt8 $type("NamingState");
    device @26 :UInt32;
  }
  parent @10 :UInt64 $type("FileId");
  name @11 :Data;
  target @12 :Data;  # of a symbolic link
  xattrs @13 :List(Xattr);
  map @14 :ChunkMap;
  drained @15 :Bool;
  evicted @16 :Bool;
  inDrain @17 :Bool;
  staleInDrain @18 :Bool;
  sequence @19 :UInt64 $below("kCountsEnd");        # orders the commits
  policy @20 :List(PolicySetting) $type("Policy");  # of a directory
  copies @21 :UInt32;   # the number of a Redundancy, for each chunk
  opened @22 :UInt64;   # as in CommitVersion
  written @23 :UInt64;  # the commit that wrote the file from nothing; 0: `sequence`
  drainedSets @25 :List(DrainedSet);  # of a directory
  homes @27 :List(UInt64) $Say.items("BenefactorId");  # of the chunks of `map`, as in CommitVersion
  aside @28 :UInt64;   # VersionData::aside of a version that is not drained
  staged @29 :Bool;    # as in VersionData
  held @30 :Bool;      # MirrorQueue::held()
  partial @31 :Bool;   # as in VersionData
}

struct EpochRecords {
  # The number of commands in an epoch. The first epoch of a pool also counts the commands before it, which
  # restore files from the drain directory.
  epoch @0 :UInt64 $type("Epoch");
  records @1 :UInt64 $below("kCountsEnd");
}

struct RestoreCounters {
  # The end of a snapshot. In a snapshot without `epochs`, which is older, it comes first.
  epoch @0 :UInt64 $type("Epoch");
  sequence @1 :UInt64 $below("kCountsEnd");
  mirrorSequence @2 :UInt64 $below("kCountsEnd");
  history :group {
    # Totals of commits and drains of named files since the pool began, also of files that are gone.
    # msg::PoolTotals describes each number.
    images @3 :UInt64;
    writtenBytes @4 :UInt64;
    storedBytes @5 :UInt64;
    drainedImages @6 :UInt64;
    drainedBytes @7 :UInt64;
  }
  epochs @8 :List(EpochRecords);  # those of the present block of epochs
}

struct RestoreMirror {
  # Part of a snapshot: a change in the mirror queue.
  sequence @0 :UInt64;
  change :group $type("stdchk::msg::MirrorChange") {
    kind @1 :UInt8 $type("msg::MirrorKind");
    path @2 :Data;
    otherPath @3 :Data;
    file @4 :UInt64 $type("FileId");
    number @5 :UInt64;
    mode @6 :UInt32;
    uid @7 :UInt32;
    gid @8 :UInt32;
    mtimeNs @9 :Int64;
    uidBefore @10 :UInt32 = 0xffffffff;  # as in the request
  }
}

struct BeginGeneration {
  # A generation of an application's sets has ended: of all sets in a folder, or of single ones. Later
  # images do not complete what was written before the commit `ended`, or by a session opened before it.
  # Single sets may also be found `whole`. Also part of a snapshot. 0 changes nothing. SetGenerations
  # explains the words.
  struct Set {
    timestep @0 :UInt64;
    begun @1 :UInt64;
    ended @2 :UInt64 $below("kCountsEnd");
    whole @3 :UInt64;  # the number of images that made the set whole
  }
  directory @0 :UInt64 $type("FileId");
  application @1 :Data;
  begun @2 :UInt64;
  ended @3 :UInt64 $below("kCountsEnd");
  sets @4 :List(Set);
}

struct LeaseNames {
  # A client holds the names of a directory from now on. In a snapshot also without a directory: then the client
  # has sent batches up to `number`.
  directory @0 :UInt64 $type("FileId");
  holder @1 :UInt64;  # names all leases of the client until they are lost
  client @2 :UInt64 $type("ClientId");
  number @3 :UInt64;
}

struct EndLeases {
  # Ends a holder's leases on these directories. Without directories all its leases end, and later batches of the holder
  # are refused.
  holder @0 :UInt64;
  directories @1 :List(UInt64) $Say.items("FileId");
}

struct ApplyNames {
  # A batch of changes by the holder of the directories. At the first change that does not fit, the rest of the batch
  # is dropped, and all leases of the holder end.
  struct Item {
    change :group $type("stdchk::msg::NameChange") {
      kind @0 :UInt8 $type("msg::NameChangeKind");
      parent @1 :UInt64 $type("FileId");
      name @2 :Data;
      file @3 :UInt64 $type("FileId");
      toParent @4 :UInt64 $type("FileId");
      toName @5 :Data;
      mask @6 :UInt32;
      mode @7 :UInt32;
      uid @8 :UInt32;
      gid @9 :UInt32;
      atimeNs @10 :Int64;
      mtimeNs @11 :Int64;
      timeNs @12 :Int64;
      target @13 :Data;
      lease @14 :Bool;
    }
    copies @15 :UInt32;  # of a new file, as in CommitVersion
  }
  holder @0 :UInt64;
  number @1 :UInt64;
  changes @2 :List(Item);
  mirror @3 :Bool;
}

struct RestoreCalls {
  # Restores DoneCalls from a snapshot: `calls` of the client were executed; whether other calls up to
  # `forgotten` were is unknown. A final command without calls covers all other clients up to `client`:
  # whether their calls up to `forgotten` were executed is unknown.
  client @0 :UInt64 $type("ClientId");
  forgotten @1 :UInt64;
  calls @2 :List(UInt64);
}

struct Command {
  # All commands, in the order of the journal.
  union {
    beginEpoch :group {
      # The manager has started.
      epoch @0 :UInt64 $type("Epoch");
    }
    addBenefactor @1 :AddBenefactor;
    commitVersion @2 :CommitVersion;
    addDirectory @3 :AddDirectory;
    addSymlink @4 :AddSymlink;
    removeName @5 :RemoveName;
    renameName @6 :RenameName;
    changeAttributes @7 :ChangeAttributes;
    changeXattr @8 :ChangeXattr;
    drainStarted :group {
      # From now on the drain directory may have a file under this file's name. The set that this image
      # belongs to is no longer whole there.
      file @9 :UInt64 $type("FileId");
    }
    drained @10 :Drained;
    evict @11 :Evict;
    mirrored :group {
      # The oldest change of the mirror queue, which has this number, was repeated or given up.
      sequence @12 :UInt64;
    }
    moveChunks @13 :MoveChunks;
    restoreFile @14 :RestoreFile;
    restoreCounters @15 :RestoreCounters;
    restoreMirror @16 :RestoreMirror;
    setPolicy @17 :SetPolicy;
    setLatest @18 :SetLatest;
    changeCopies @19 :ChangeCopies;
    makeStripes @20 :MakeStripes;
    beginGeneration @21 :BeginGeneration;
    drainLost @22 :DrainLost;
    restoreCalls @23 :RestoreCalls;
    addNode @24 :AddNode;
    addLink @25 :AddLink;
    restoreLink @26 :RestoreLink;
    nameHeld :group {
      # The files before this symbolic link are in the drain directory: it gets its names there, too.
      file @27 :UInt64 $type("FileId");
    }
    closed :group {
      # The writer of a member of a set has closed the file and has written nothing more: the version is not
      # partial. Or a writer is lost that had committed a part: the version is partial.
      file @28 :UInt64 $type("FileId");
      lost @29 :Bool;
    }
    leaseNames @30 :LeaseNames;
    endLeases @31 :EndLeases;
    applyNames @32 :ApplyNames;
  }
}
