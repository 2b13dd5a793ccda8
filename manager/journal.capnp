@0xd3a4f1c5b7e90211;
# The manager's journal: each record is one Command (docs/formats.md). Fields are added, never
# removed or given another meaning. New commands go to the end of the union.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::manager::wire");

struct Extent {
  benefactor @0 :UInt64;
  offset @1 :UInt64;
}

struct Chunk {
  name @0 :Data;  # 32 bytes; empty: not named
  length @1 :UInt32;
  crc @2 :UInt32;
  copies @3 :List(Extent);
}

struct Slice {
  fileOffset @0 :UInt64;
  length @1 :UInt32;
  chunkOffset @2 :UInt32;
  chunk @3 :UInt32;
}

struct ChunkMap {
  chunks @0 :List(Chunk);
  slices @1 :List(Slice);
}

struct Xattr {
  name @0 :Data;
  value @1 :Data;
}

struct NewName {
  parent @0 :UInt64;
  name @1 :Data;
  mode @2 :UInt32;
  uid @3 :UInt32;
  gid @4 :UInt32;
  atimeNs @5 :Int64;
  xattrs @6 :List(Xattr);
}

struct Caller {
  client @0 :UInt64;
  call @1 :UInt64;
}

struct AddBenefactor {
  id @0 :UInt64;
  lifeHigh @1 :UInt64;
  lifeLow @2 :UInt64;
  arenaBytes @3 :UInt64;
  hostName @4 :Data;
}

struct CommitVersion {
  file @0 :UInt64;
  create @1 :NewName;  # absent: the file has its name already
  cutBefore @2 :Bool;
  cutBytes @3 :UInt64;
  setSize @4 :Bool;
  sizeBytes @5 :UInt64;
  mtimeNs @6 :Int64;
  nowNs @7 :Int64;
  written @8 :ChunkMap;
  mirror @9 :Bool;
  copies @10 :UInt32;  # of each chunk; 0: one; with parity data * 65536 + parity * 256 + 1
  opened @11 :UInt64;  # the newest commit when the session was opened
  replacing @12 :UInt64;  # `opened` of a session that rewrites another image of the set, or 0
  naming @13 :UInt8;  # a NamingState of core/types.h
  sameAs @14 :UInt64;  # not 0: puts the content of this drained version back into memory
}

struct AddName {  # a directory or a symbolic link
  id @0 :UInt64;
  parent @1 :UInt64;
  name @2 :Data;
  target @3 :Data;
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  nowNs @7 :Int64;
  mirror @8 :Bool;
  caller @9 :Caller;  # in all commands; absent: no client asked for the change
}

struct RemoveName {
  parent @0 :UInt64;
  name @1 :Data;
  directory @2 :Bool;
  nowNs @3 :Int64;
  mirror @4 :Bool;
  caller @5 :Caller;
}

struct RenameName {
  fromParent @0 :UInt64;
  fromName @1 :Data;
  toParent @2 :UInt64;
  toName @3 :Data;
  noReplace @4 :Bool;
  exchange @5 :Bool;
  nowNs @6 :Int64;
  mirror @7 :Bool;
  caller @8 :Caller;
}

struct ChangeAttributes {
  file @0 :UInt64;
  mask @1 :UInt32;
  mode @2 :UInt32;
  uid @3 :UInt32;
  gid @4 :UInt32;
  atimeNs @5 :Int64;
  mtimeNs @6 :Int64;
  nowNs @7 :Int64;
  mirror @8 :Bool;
  caller @9 :Caller;
}

struct ChangeXattr {
  file @0 :UInt64;
  name @1 :Data;
  value @2 :Data;
  mode @3 :UInt8;
  remove @4 :Bool;
  nowNs @5 :Int64;
  caller @6 :Caller;
}

struct PolicySetting {
  key @0 :UInt16;
  value @1 :UInt64;  # all ones: removes the setting
}

struct SetPolicy {
  directory @0 :UInt64;
  changes @1 :List(PolicySetting);
  nowNs @2 :Int64;
  caller @3 :Caller;
}

struct DrainedSet {
  name @0 :Data;
  sequence @1 :UInt64;
}

struct SetLatest {
  directory @0 :UInt64;
  id @1 :UInt64;
  target @2 :Data;
  drainedTarget @3 :Data;
  nowNs @4 :Int64;
  drainedSequence @5 :UInt64;  # 0 in records older than DrainedSet
}

struct FileVersion {
  file @0 :UInt64;
  version @1 :UInt64;
  slices @2 :List(UInt32);
}

struct Move {
  fromOffset @0 :UInt64;
  toOffset @1 :UInt64;
}

struct MoveChunks {
  benefactor @0 :UInt64;
  moves @1 :List(Move);
}

struct CopyChange {
  at @0 :Extent;    # an existing copy of the chunk
  name @1 :Data;    # 32 bytes; empty: not named
  length @2 :UInt32;
  add @3 :Extent;   # absent: adds no copy
  drop @4 :Extent;  # absent: drops no copy
}

struct ChangeCopies {
  changes @0 :List(CopyChange);
}

struct Stripe {
  data @0 :List(Chunk);    # found by name and length, or by a copy
  parity @1 :List(Chunk);  # chunks without names, with their copies
}

struct MakeStripes {
  stripes @0 :List(Stripe);
}

struct RestoreFile {
  id @0 :UInt64;
  type @1 :UInt8;
  mode @2 :UInt32;
  uid @3 :UInt32;
  gid @4 :UInt32;
  sizeBytes @5 :UInt64;
  version @6 :UInt64;
  atimeNs @7 :Int64;
  mtimeNs @8 :Int64;
  ctimeNs @9 :Int64;
  parent @10 :UInt64;
  name @11 :Data;
  target @12 :Data;
  xattrs @13 :List(Xattr);
  map @14 :ChunkMap;
  drained @15 :Bool;
  evicted @16 :Bool;
  inDrain @17 :Bool;
  staleInDrain @18 :Bool;
  sequence @19 :UInt64;
  policy @20 :List(PolicySetting);
  copies @21 :UInt32;  # as in CommitVersion
  opened @22 :UInt64;  # as in CommitVersion
  written @23 :UInt64;  # the commit that wrote the content from nothing; 0: as sequence
  naming @24 :UInt8;  # as in CommitVersion
  drainedSets @25 :List(DrainedSet);
}

struct EpochRecords {
  epoch @0 :UInt64;
  records @1 :UInt64;
}

struct RestoreCounters {
  epoch @0 :UInt64;
  sequence @1 :UInt64;
  mirrorSequence @2 :UInt64;
  images @3 :UInt64;  # this and the next fields: totals since the pool began
  writtenBytes @4 :UInt64;
  storedBytes @5 :UInt64;
  drainedImages @6 :UInt64;
  drainedBytes @7 :UInt64;
  epochs @8 :List(EpochRecords);  # number of records of each epoch of the block
}

struct RestoreMirror {
  sequence @0 :UInt64;
  kind @1 :UInt8;
  path @2 :Data;
  otherPath @3 :Data;
  file @4 :UInt64;
  number @5 :UInt64;
  mode @6 :UInt32;
  uid @7 :UInt32;
  gid @8 :UInt32;
  mtimeNs @9 :Int64;
  uidBefore @10 :UInt32 = 0xffffffff;  # attributes: the owner before the change
}

struct SetBegun {
  timestep @0 :UInt64;
  begun @1 :UInt64;
  ended @2 :UInt64;
  whole @3 :UInt64;  # number of images when the set was found whole
}

struct BeginGeneration {
  directory @0 :UInt64;
  application @1 :Data;
  begun @2 :UInt64;
  ended @3 :UInt64;
  sets @4 :List(SetBegun);
}

struct RestoreCalls {
  client @0 :UInt64;
  forgotten @1 :UInt64;
  calls @2 :List(UInt64);
}

struct Command {
  union {
    beginEpoch @0 :UInt64;
    addBenefactor @1 :AddBenefactor;
    commitVersion @2 :CommitVersion;
    addDirectory @3 :AddName;
    addSymlink @4 :AddName;
    removeName @5 :RemoveName;
    renameName @6 :RenameName;
    changeAttributes @7 :ChangeAttributes;
    changeXattr @8 :ChangeXattr;
    drainStarted @9 :UInt64;
    drained @10 :FileVersion;
    evict @11 :FileVersion;
    mirrored @12 :UInt64;
    moveChunks @13 :MoveChunks;
    restoreFile @14 :RestoreFile;
    restoreCounters @15 :RestoreCounters;
    restoreMirror @16 :RestoreMirror;
    setPolicy @17 :SetPolicy;
    setLatest @18 :SetLatest;
    changeCopies @19 :ChangeCopies;
    makeStripes @20 :MakeStripes;
    beginGeneration @21 :BeginGeneration;
    drainLost @22 :FileVersion;
    restoreCalls @23 :RestoreCalls;
  }
}
