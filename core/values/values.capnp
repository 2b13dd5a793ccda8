@0x8ad1f7c35be20694;
# The values that messages and files are made of. core/schema/README.md tells how to change this file.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::wire");
using Say = import "/core/schema/annotations.capnp";
using type = Say.type;
using max = Say.max;
using required = Say.required;
$Say.namespace("stdchk");
$Say.include("<vector>");
$Say.include("core/values/ids.h");

enum Naming {
  # Says whether chunks are named by their content, so that equal chunks are stored once.
  off @0;
  auto @1;  # only while a series of images has chunks that the pool already stores
  on @2;
}

enum NamingState {
  # Says how the chunks of a version were named at the last write. Wire and journal contain the numbers.
  unknown @0;    # the writer has not reported it, or has written no chunks
  off @1;        # no chunk is named by content
  on @2;         # all chunks are named
  didNotPay @3;  # under Naming::kAuto, at the end: only samples are named
}

enum FileType {
  invalid @0;
  regular @1;
  directory @2;
  symlink @3;
  fifo @4;
  socket @5;
  characterDevice @6;
  blockDevice @7;
}

enum DrainState {
  # How far the newest version of an image is on its way to the parallel file system.
  none @0;     # no drain directory, nothing committed, or left out by the policy drain-every
  pending @1;  # waits for its turn
  running @2;
  drained @3;  # whole under its own name, durable, verified
  failed @4;   # will be tried again
}

struct Extent $Say.ordered {
  # An Extent is the place of one copy of a chunk. The chunk's bytes follow the extent's header
  # (core/chunk/extent_header.h).
  benefactor @0 :UInt64 $type("BenefactorId") $required;
  offset @1 :UInt64;  # of the extent's header in the arena
}

struct Chunk {
  # A Chunk is a run of bytes that is stored, checked and shared as a whole. The first copy, usually the
  # only one, lies in the struct itself: a chunk and its slice take 88 bytes on the wire.
  name :group $type("stdchk::ChunkName") $Say.byHand {
    # Empty where naming is off.
    word0 @0 :UInt64;  # the 32 bytes of the name, in order, as four little-endian words
    word1 @1 :UInt64;
    word2 @2 :UInt64;
    word3 @3 :UInt64;
  }
  length @4 :UInt32;  # bytes of content, without the header
  crc @5 :UInt32;     # CRC32C of the content
  copies :group $type("std::vector<stdchk::Extent>") $Say.byHand {
    # At most limits::kCopiesMax. Empty: only the drain directory has the bytes.
    benefactor @6 :UInt64;  # of the first copy; 0: no copy
    offset @7 :UInt64;
    more @8 :List(Extent);  # the other copies
  }
}

struct Slice {
  # A Slice maps a range of a file to a chunk. `length` bytes of the file from `file_offset` on are the
  # chunk's bytes from `chunk_offset` on.
  fileOffset @0 :UInt64;
  length @1 :UInt32;
  chunkOffset @2 :UInt32;
  chunk @3 :UInt32;  # index into the map's chunks
}

struct Hole {
  # A Hole is a range of a file that loses its bytes.
  offset @0 :UInt64;
  length @1 :UInt64;
}

struct ChunkMap $Say.holds("is_consistent") {
  # A ChunkMap is the content of a file's version, or a part of this content. Slices ascend and do not
  # overlap. Bytes without a slice read as zeros.
  chunks @0 :List(Chunk) $max("kMapPageSlicesMax");
  slices @1 :List(Slice) $max("kMapPageSlicesMax");
}

struct Grant {
  # A Grant is a lease on an empty, contiguous part of an arena. Its client carves extents in it.
  id @0 :UInt64 $type("GrantId") $required;
  benefactor @1 :UInt64 $type("BenefactorId") $required;
  offset @2 :UInt64;
  length @3 :UInt64;
  first @4 :UInt64 $type("BenefactorId");
  # Only chunks whose first place is on this benefactor may use the grant. None: any chunk may.
  domain @5 :UInt64;
  # Within a session, grants with equal values are on benefactors that may fail together.
  proofLow @6 :UInt64;
  # Proves to the benefactor that the manager made this grant to this client (transport/secure/grant_proof.h).
  proofHigh @7 :UInt64;
}

struct Attributes {
  # File attributes, with the size and times of one version.
  id @0 :UInt64 $type("FileId");
  type @1 :FileType;
  mode @3 :UInt32;  # permission bits only, 07777
  uid @4 :UInt32;
  gid @5 :UInt32;
  linkCount @6 :UInt32 $Say.initial("1");
  sizeBytes @7 :UInt64;
  storedBytes @8 :UInt64;  # bytes of the slices, without holes
  version @9 :UInt64 $type("Version");
  atimeNs @10 :Int64;
  mtimeNs @11 :Int64;
  ctimeNs @12 :Int64;
  drain @2 :DrainState;
  copies @13 :UInt32;  # wanted for each chunk: the number of a Redundancy (core/policy/redundancy.h)
  naming @14 :NamingState;
  device @15 :UInt32;  # of a device: its number, as makedev(3) and FUSE have it
  hasAccessList @16 :Bool;   # the extended attributes have the list (core/policy/access_list.h)
  hasDefaultList @17 :Bool;  # of a directory: what is made in it gets access lists
  hasNoXattrs @18 :Bool;     # false: the file may have extended attributes
}
