@0x96264a81ba849d50;
# The wire contract of stdchk. One message on a link is one Envelope in Cap'n Proto's standard stream
# framing with exactly one segment, at most 256 KiB (core/limits.h).
#
# Rules for changes: fields and union members are only ever added, at the end; numbers are never
# reused; a receiver treats what it does not know as absent. docs/protocol.md tells who sends what
# when; core/messages/messages.h has the same messages as C++ values.
#
# Conventions: ids are numbers from 1 on, 0 is "none". Times are nanoseconds since 1970-01-01 UTC.
# File names, paths and link targets are bytes without NUL (Data), text for people is Text. Every
# list and string has a limit (core/limits.h); a message that breaks one is refused as a whole.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::msg::wire");

# ---- the envelope ------------------------------------------------------------------------------

struct Envelope {
  # What is sent on a link.
  union {
    request @0 :Request;  # asks the peer for something; answered by one Reply
    reply @1 :Reply;      # answers a request
    notice @2 :Notice;    # tells something; not answered
  }
}

struct Request {
  # A request. Client ... benefactor in the order of core/messages/messages.h.
  callId @0 :UInt64;      # chosen by the sender; the reply carries it back
  deadlineMs @1 :UInt32;  # how long the sender waits from now on
  sender @2 :UInt64;      # client or benefactor number; with callId it names a repeated request
  union {
    registerClient @3 :RegisterClient;
    clientHeartbeat @4 :ClientHeartbeat;
    goodbyeClient @5 :GoodbyeClient;
    listBenefactors @6 :Empty;
    registerBenefactor @7 :RegisterBenefactor;
    benefactorHeartbeat @8 :BenefactorHeartbeat;
    lookup @9 :Lookup;
    getAttributes @10 :GetAttributes;
    readDirectory @11 :ReadDirectory;
    setAttributes @12 :SetAttributes;
    makeDirectory @13 :MakeDirectory;
    makeSymlink @14 :MakeSymlink;
    readSymlink @15 :ReadSymlink;
    remove @16 :Remove;
    rename @17 :Rename;
    setXattr @18 :SetXattr;
    getXattrs @19 :GetXattrs;
    statPool @20 :Empty;
    openSession @21 :OpenSession;
    place @22 :Place;
    commit @23 :Commit;
    closeSession @24 :CloseSession;
    getMap @25 :GetMap;
    unpin @26 :Unpin;
    drainNow @27 :DrainNow;
    listAborted @28 :Empty;
    fenceClient @29 :FenceClient;
    drainPieces @30 :DrainPieces;
    drainFinish @31 :DrainFinish;
    mirrorChange @32 :MirrorChange;
    moveExtents @33 :MoveExtents;
    attach @34 :Attach;
    getPolicy @35 :GetPolicy;
    setPolicy @36 :SetPolicy;
    listSets @37 :ListSets;
    copyExtents @38 :CopyExtents;
    checkExtents @39 :CheckExtents;
    getDebt @40 :GetDebt;
    scrub @41 :Scrub;
    checkMetadata @42 :Empty;
    collectGarbage @43 :CollectGarbage;
    buildStripe @44 :BuildStripe;
    getStripe @45 :GetStripe;
    keepLog @46 :KeepLog;
    readLog @47 :ReadLog;
    reportWrongCopy @48 :ReportWrongCopy;
    followManager @49 :FollowManager;
    reportExtents @50 :ReportExtents;
    forgetExtents @51 :ForgetExtents;
    resumeSession @52 :ResumeSession;
    confirmDrained @53 :ConfirmDrained;
    findDrained @54 :FindDrained;
  }
}

struct Reply {
  # The answer to the request with the same callId. The union member has the request's name.
  callId @0 :UInt64;
  code @1 :UInt16;          # 0: success; otherwise a number of core/error_codes.h
  osErrno @2 :Int32;        # errno of the system call that failed at the server; 0: none
  retryAfterMs @3 :UInt32;  # back-off that the server asks for
  detail @4 :Text;          # for people; may be empty
  union {
    none @5 :Void;  # with a code other than 0
    registerClient @6 :RegisterClientReply;
    clientHeartbeat @7 :Empty;
    goodbyeClient @8 :Empty;
    listBenefactors @9 :ListBenefactorsReply;
    registerBenefactor @10 :RegisterBenefactorReply;
    benefactorHeartbeat @11 :BenefactorHeartbeatReply;
    lookup @12 :AttributesReply;
    getAttributes @13 :AttributesReply;
    readDirectory @14 :ReadDirectoryReply;
    setAttributes @15 :AttributesReply;
    makeDirectory @16 :AttributesReply;
    makeSymlink @17 :AttributesReply;
    readSymlink @18 :ReadSymlinkReply;
    remove @19 :RemoveReply;
    rename @20 :RenameReply;
    setXattr @21 :Empty;
    getXattrs @22 :GetXattrsReply;
    statPool @23 :StatPoolReply;
    openSession @24 :OpenSessionReply;
    place @25 :PlaceReply;
    commit @26 :CommitReply;
    closeSession @27 :Empty;
    getMap @28 :GetMapReply;
    unpin @29 :Empty;
    drainNow @30 :DrainNowReply;
    listAborted @31 :ListAbortedReply;
    fenceClient @32 :FenceClientReply;
    drainPieces @33 :DrainPiecesReply;
    drainFinish @34 :Empty;
    mirrorChange @35 :Empty;
    moveExtents @36 :MoveExtentsReply;
    attach @37 :AttachReply;
    getPolicy @38 :GetPolicyReply;
    setPolicy @39 :Empty;
    listSets @40 :ListSetsReply;
    copyExtents @41 :CopyExtentsReply;
    checkExtents @42 :CheckExtentsReply;
    getDebt @43 :GetDebtReply;
    scrub @44 :ScrubReply;
    checkMetadata @45 :CheckMetadataReply;
    collectGarbage @46 :CollectGarbageReply;
    buildStripe @47 :BuildStripeReply;
    getStripe @48 :GetStripeReply;
    keepLog @49 :Empty;
    readLog @50 :ReadLogReply;
    reportWrongCopy @51 :Empty;
    followManager @52 :FollowManagerReply;
    reportExtents @53 :ReportExtentsReply;
    forgetExtents @54 :ForgetExtentsReply;
    resumeSession @55 :ResumeSessionReply;
    confirmDrained @56 :ConfirmDrainedReply;
    findDrained @57 :FindDrainedReply;
  }
}

struct Notice {
  # A one-way message, manager to client.
  union {
    invalidate @0 :Invalidate;
    none @1 :Void;  # keeps the union open for more
  }
}

struct Empty {}
# Says nothing but that it was asked or done. A member of this type may get a struct of its own.

# ---- parts of messages -------------------------------------------------------------------------

enum FileType {
  invalid @0;
  regular @1;
  directory @2;
  symlink @3;
}

enum DrainState {
  # How far the newest version is on its way to the parallel file system.
  none @0;     # no drain directory, or nothing committed
  pending @1;
  running @2;
  drained @3;  # whole under its own name, durable, verified
  failed @4;   # will be tried again
}

enum NamingState {
  # How the chunks of a version were named when they were written last.
  unknown @0;    # its writer has not told, or has written no chunks
  off @1;        # none by content
  on @2;         # all
  didNotPay @3;  # with Naming auto, at the end: samples only
}

struct Attributes {
  # A file's attributes as of one version.
  id @0 :UInt64;
  type @1 :FileType;
  drain @2 :DrainState;
  mode @3 :UInt32;         # permission bits, 07777
  uid @4 :UInt32;
  gid @5 :UInt32;
  linkCount @6 :UInt32;
  sizeBytes @7 :UInt64;
  storedBytes @8 :UInt64;  # bytes of the slices, without holes
  version @9 :UInt64;      # committed states so far
  atimeNs @10 :Int64;
  mtimeNs @11 :Int64;
  ctimeNs @12 :Int64;
  copies @13 :UInt32;      # that each chunk should have; 0: one; with parity
                           # data * 65536 + parity * 256 + 1
  naming @14 :NamingState;
}

struct Extent {
  # The place of one copy of a chunk.
  benefactor @0 :UInt64;
  offset @1 :UInt64;  # of the extent header in the arena
}

struct Chunk {
  # A run of bytes that is stored, checked and shared as a whole. One copy, the usual case, lies in
  # the struct itself: a chunk and its slice take 88 bytes on the wire.
  name0 @0 :UInt64;   # the 32 bytes of the name, in order, as four little-endian words; 0: no name
  name1 @1 :UInt64;
  name2 @2 :UInt64;
  name3 @3 :UInt64;
  length @4 :UInt32;  # bytes of content, without the header
  crc @5 :UInt32;     # CRC32C of the content
  benefactor @6 :UInt64;  # the first copy; 0: there is none, only the drain directory has the bytes
  offset @7 :UInt64;
  more @8 :List(Extent);  # the other copies
}

struct Slice {
  # `length` bytes from `fileOffset` on are those of chunk number `chunk` from `chunkOffset` on.
  fileOffset @0 :UInt64;
  length @1 :UInt32;
  chunkOffset @2 :UInt32;
  chunk @3 :UInt32;  # index into the map's chunks
}

struct ChunkMap {
  # A version's content, or a part of it. Slices ascend and do not overlap; holes read as zeros.
  chunks @0 :List(Chunk);
  slices @1 :List(Slice);
}

struct Grant {
  # A lease on an empty, contiguous part of an arena.
  id @0 :UInt64;
  benefactor @1 :UInt64;
  offset @2 :UInt64;
  length @3 :UInt64;
  first @4 :UInt64;   # for places of chunks that have their first one there; 0: of any
  domain @5 :UInt64;  # equal numbers in one session: benefactors that may fail together
}

struct Secret {
  # A 128-bit secret. Messages of earlier versions had one; no message has it any more.
  high @0 :UInt64;
  low @1 :UInt64;
}

struct PolicySetting {
  # One thing that a folder asks for; core/policy.h has the keys and what their values mean.
  key @0 :UInt16;
  value @1 :UInt64;  # all ones: as the folder above has it
}
struct Policy {
  settings @0 :List(PolicySetting);  # each key once
}

# ---- membership --------------------------------------------------------------------------------

enum BenefactorState {
  invalid @0;
  alive @1;
  silent @2;
  gone @3;
}

struct BenefactorInfo {
  # A benefactor as clients see it.
  id @0 :UInt64;
  addresses @1 :List(Text);  # one for each transport, the best first
  hostToken @2 :Text;        # equal tokens: shared memory works between the two
  hostName @3 :Text;
  arenaBytes @4 :UInt64;
  freeBytes @5 :UInt64;
  state @6 :BenefactorState;
  pid @7 :Int64;
  # How the receiver, and nobody else, proves itself to the benefactor; absent where no links are to
  # be opened.
  member @8 :Data;          # the benefactor's member id, 16 bytes
  ticketNumber @9 :UInt64;  # the client number to attach under
  ticketKey @10 :Data;      # of links under that number, 32 bytes
}

enum Naming {
  off @0;
  auto @1;     # as long as a series of images has chunks that the pool has already
  on @2;
}

struct PoolConfig {
  # What holds for the whole pool.
  chunkBytes @0 :UInt32;
  stripeWidth @1 :UInt32;
  naming @2 :Naming;               # whether chunks are named by their content
  drainDirectory @3 :Data;         # absolute path; empty: there is none
  drainRateBytesPerS @4 :UInt64;   # of each benefactor; 0: not limited
  contentCuts @5 :Bool;            # with naming: chunks end where their content says
  copies @6 :UInt32;               # as in Attributes, where nothing else is asked for
}

struct RegisterClient {
  secret @0 :Secret;  # not sent any more, and not looked at: the link has proven its ends
  hostToken @1 :Text;
  hostName @2 :Text;
  pid @3 :Int64;
  role @4 :Text;      # "mount", "tool", "library"
  resume @5 :UInt64;  # after a lost link: the number it had
  newestEpoch @6 :UInt64;  # the highest that it has heard of
  proof @7 :Data;          # as the reply that gave it `resume` has told: without it both count as 0
}
struct RegisterClientReply {
  client @0 :UInt64;  # the number to use from now on
  epoch @1 :UInt64;   # the manager's life
  config @2 :PoolConfig;
  benefactors @3 :List(BenefactorInfo);
  proof @4 :Data;  # that this member was given this number; only a manager of the pool can make it
}

struct WriterTotals {
  # What a client's writes have come to since it began; each number only grows.
  first @0 :UInt64;  # the first number that the client had
  closedBytes @1 :UInt64;    # whose close, or other commit, has returned
  openToCloseNs @2 :UInt64;  # of all those files together
  committedBytes @3 :UInt64;
  openToCommitNs @4 :UInt64;
  longestCallNs @5 :UInt64;  # of one write, fsync or close
  namedBytes @6 :UInt64;     # of chunks that got a name
  equalBytes @7 :UInt64;     # of those, what was there already
  namingNs @8 :UInt64;       # of a processor, for the names
}

struct ReaderTotals {
  # What files' readers have got from a client since it began; each number only grows.
  poolBytes @0 :UInt64;     # from benefactors, or made from stripes
  cachedBytes @1 :UInt64;   # that had been read before
  drainedBytes @2 :UInt64;  # from the drain directory
}

struct ClientHeartbeat {
  # Renews the lease of the client, its sessions and its pins.
  client @0 :UInt64;
  totals @1 :WriterTotals;
  reads @2 :ReaderTotals;
  readerCount @3 :UInt64;  # files that are open for reading, each as often as it is
}

struct GoodbyeClient {
  # The client ends: sessions are aborted, pins released.
  client @0 :UInt64;
  totals @1 :WriterTotals;
  reads @2 :ReaderTotals;
}

struct ListBenefactorsReply {
  benefactors @0 :List(BenefactorInfo);
}

struct RegisterBenefactor {
  secret @0 :Secret;    # not sent any more, and not looked at
  lifeHigh @1 :UInt64;  # random bits made with the arena: name this life of it
  lifeLow @2 :UInt64;   # made of these and the member's key: no other member has this life
  addresses @3 :List(Text);
  hostToken @4 :Text;
  hostName @5 :Text;
  arenaBytes @6 :UInt64;
  pid @7 :Int64;
  newestEpoch @8 :UInt64;  # the highest that it has heard of
  logBytesMax @9 :UInt64;  # of a metadata log that it can keep
  logEpoch @10 :UInt64;    # of the whole log that it has
  logSequence @11 :UInt64;     # of that log's newest record
  newestSequence @12 :UInt64;  # of the newest record, of newestEpoch, that it knows to have been answered
  benefactor @13 :UInt64;      # that it was in newestEpoch
  proof @14 :Data;             # of the last three but the log's: without it they count as 0
}
struct RegisterBenefactorReply {
  benefactor @0 :UInt64;
  epoch @1 :UInt64;
  config @2 :PoolConfig;
  firstClient @3 :UInt64;  # smaller client numbers are of earlier epochs: they may not attach
  proof @4 :Data;          # that this member was told of this benefactor number and epoch
}

struct BenefactorHeartbeat {
  benefactor @0 :UInt64;
  leaving @1 :Bool;  # it wants to end: what only it has is copied elsewhere first
}
struct BenefactorHeartbeatReply {
  mayGo @0 :Bool;           # nothing is left that could be copied elsewhere
  logSequence @1 :UInt64;  # of the newest record that was answered in this epoch
  proof @2 :Data;          # that this member was told of that record
}

struct FollowManager {
  # From a manager's standby, on a link of its own, again and again.
  secret @0 :Secret;       # not sent any more, and not looked at
  address @1 :Text;        # where the standby takes links
  newestEpoch @2 :UInt64;  # the highest that it has heard of, or its own
  seen @3 :UInt64;         # number of the newest reply that it has, of that epoch
}
struct FollowManagerReply {
  epoch @0 :UInt64;
  number @1 :UInt64;
  keepers @2 :List(UInt64);  # more than half of them must have lost the manager
}

# ---- names and attributes ----------------------------------------------------------------------

struct AttributesReply {
  # The answer of requests that look at or change one file.
  attributes @0 :Attributes;
}

struct Lookup {
  client @0 :UInt64;
  parent @1 :UInt64;
  name @2 :Data;
}

struct GetAttributes {
  client @0 :UInt64;
  file @1 :UInt64;
}

struct ReadDirectory {
  # Entries in the order of their names. The client is told of changes from then on.
  client @0 :UInt64;
  directory @1 :UInt64;
  after @2 :Data;  # the last name of the page before; empty: from the first
}
struct DirectoryEntry {
  name @0 :Data;
  attributes @1 :Attributes;
}
struct ReadDirectoryReply {
  entries @0 :List(DirectoryEntry);
  more @1 :Bool;
  parent @2 :UInt64;  # of the directory itself
}

struct SetAttributes {
  client @0 :UInt64;
  file @1 :UInt64;
  mask @2 :UInt32;  # which of the following hold: 1 mode, 2 uid, 4 gid, 8 atime, 16 mtime
  mode @3 :UInt32;
  uid @4 :UInt32;
  gid @5 :UInt32;
  atimeNs @6 :Int64;
  mtimeNs @7 :Int64;
}

struct MakeDirectory {
  client @0 :UInt64;
  parent @1 :UInt64;
  name @2 :Data;
  mode @3 :UInt32;
  uid @4 :UInt32;
  gid @5 :UInt32;
}

struct MakeSymlink {
  client @0 :UInt64;
  parent @1 :UInt64;
  name @2 :Data;
  target @3 :Data;
  uid @4 :UInt32;
  gid @5 :UInt32;
}

struct ReadSymlink {
  file @0 :UInt64;
}
struct ReadSymlinkReply {
  target @0 :Data;
}

struct Remove {
  # Removes a file's name, or an empty directory.
  client @0 :UInt64;
  parent @1 :UInt64;
  name @2 :Data;
  directory @3 :Bool;
}
struct RemoveReply {
  file @0 :UInt64;
  directory @1 :Attributes;  # where the name was; no id: nothing durable has changed
}

struct Rename {
  client @0 :UInt64;
  fromParent @1 :UInt64;
  fromName @2 :Data;
  toParent @3 :UInt64;
  toName @4 :Data;
  noReplace @5 :Bool;
  exchange @6 :Bool;
}
struct RenameReply {
  replaced @0 :UInt64;  # the file that lost its name
}

enum XattrMode {
  either @0;
  create @1;
  replace @2;
}

struct SetXattr {
  client @0 :UInt64;
  file @1 :UInt64;
  name @2 :Data;
  value @3 :Data;  # any bytes
  mode @4 :XattrMode;
  remove @5 :Bool;
}

struct GetXattrs {
  file @0 :UInt64;
}
struct Xattr {
  name @0 :Data;
  value @1 :Data;
}
struct GetXattrsReply {
  attributes @0 :List(Xattr);
}

struct GetPolicy {
  file @0 :UInt64;
}
struct GetPolicyReply {
  own @0 :Policy;        # what the folder itself sets
  effective @1 :Policy;  # what holds: its own, then those above it, then the pool's
}

struct SetPolicy {
  client @0 :UInt64;
  directory @1 :UInt64;
  changes @2 :Policy;
}

struct ListSets {
  directory @0 :UInt64;
}
struct SetEntry {
  # The images A.*.Tj of one timestep.
  application @0 :Data;
  timestep @1 :UInt64;
  images @2 :UInt64;
  drained @3 :UInt64;  # images
  bytes @4 :UInt64;
  newestNs @5 :Int64;
  complete @6 :Bool;
  pinned @7 :Bool;
  latest @8 :Bool;
}
struct ListSetsReply {
  imagesWanted @0 :UInt64;  # of a whole set; 0: not known
  sets @1 :List(SetEntry);  # the newest first
}

struct PoolTotals {
  # What the report card of a pool says, since the pool began.
  images @0 :UInt64;        # files that came to have bytes, or were written anew
  writtenBytes @1 :UInt64;  # of all committed versions, what was written
  storedBytes @2 :UInt64;   # of those, what was not there already
  drainedImages @3 :UInt64;
  drainedBytes @4 :UInt64;
  writers @5 :WriterTotals;  # of all together
  atRiskNs @6 :UInt64;       # time with an image that one lost benefactor would take along
  sets @7 :UInt64;           # that were followed by another one of their application
  setsOvertaken @8 :UInt64;  # of those, not drained when the next one came
  spaceWaits @9 :UInt64;     # writers that had to wait for room
  spaceWaitNs @10 :UInt64;   # all together
  fullestPermille @11 :UInt32;  # of the lent memory, at the fullest moment
  readers @12 :ReaderTotals;  # of all together
}

struct StatPoolReply {
  totalBytes @0 :UInt64;
  freeBytes @1 :UInt64;       # not granted, not used
  evictableBytes @2 :UInt64;  # used by drained images only
  fileCount @3 :UInt64;
  chunkCount @4 :UInt64;
  logicalBytes @5 :UInt64;
  storedBytes @6 :UInt64;
  drainPendingFiles @7 :UInt64;
  drainPendingBytes @8 :UInt64;
  drainFailedFiles @9 :UInt64;
  sessionCount @10 :UInt64;
  clientCount @11 :UInt64;
  requestsServed @12 :UInt64;
  epoch @13 :UInt64;
  pid @14 :Int64;
  debtChunks @15 :UInt64;  # with fewer copies than they should have
  debtBytes @16 :UInt64;   # of the copies that are still to be made
  lostChunks @17 :UInt64;  # without a copy, and not drained
  copiesMade @18 :UInt64;  # in this epoch
  copiedBytes @19 :UInt64;
  scrub @20 :ScrubReply;
  stripes @21 :UInt64;        # chunks that protect each other by parity
  parityBytes @22 :UInt64;    # of those, beyond the chunks
  rebuiltChunks @23 :UInt64;  # made again from their stripes, in this epoch
  logCopies @24 :UInt32;  # benefactors whose metadata log has all that was answered
  logCopiesWanted @25 :UInt32;
  standby @26 :Text;  # its address; empty: there is none
  standbyFollows @27 :Bool;
  totals @28 :PoolTotals;
  readerCount @29 :UInt64;  # files that are open for reading, as clients last said
  logBytes @30 :UInt64;        # of the longest metadata log on a benefactor
  logBytesNeeded @31 :UInt64;  # memory for that log and the one that takes its place
  logBytesMax @32 :UInt64;     # the least that one of these benefactors has for logs
  logFull @33 :UInt32;         # benefactors whose memory for it was full
  standbyKeepers @34 :UInt32;  # by more than half of whom the standby decides
  standbyReached @35 :UInt32;  # of them, those whose log is whole
  logAdvice @36 :List(Text);   # what endangers the metadata, and what to do; sentences
}

# ---- sessions: writing -------------------------------------------------------------------------

struct OpenSession {
  # Opens a session on a file; makes the file first when `parent` is set.
  client @0 :UInt64;
  file @1 :UInt64;       # an existing file; 0: create
  parent @2 :UInt64;
  name @3 :Data;
  exclusive @4 :Bool;
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  truncate @8 :Bool;     # the first commit starts from an empty file
  wantBytes @9 :UInt64;  # grants to send along; 0: none
  copies @10 :UInt32;    # as in Attributes; 0: as the folder or the pool says
  waitsForCopies @11 :Bool;  # its close does, whatever the folder says
}
struct OpenSessionReply {
  session @0 :UInt64;
  created @1 :Bool;
  attributes @2 :Attributes;
  grants @3 :List(Grant);
  similarFile @4 :UInt64;  # the previous version of the series: chunks to compare with
  similarVersion @5 :UInt64;
  policy @6 :Policy;  # what holds for the file now
  opened @7 :UInt64;  # the newest commit of the pool: for ResumeSession
  places @8 :UInt32;  # that each chunk is to be written to, in different domains; 0: one
}

struct Place {
  # Dedup look-up and placement in one. Existing chunks are held until the session ends.
  session @0 :UInt64;
  chunks @1 :List(PlaceWanted);
  wantBytes @2 :UInt64;
  avoid @3 :List(UInt64);     # benefactors that a write has failed on
  returned @4 :List(UInt64);  # grants that are not used, and known to no write in flight
  unitBytes @5 :UInt32;       # the extent that each grant must have room for, at least
  beside @6 :List(UInt64);    # grants for further places of chunks that are on these; none: for new ones
}
struct PlaceWanted {
  name0 @0 :UInt64;
  name1 @1 :UInt64;
  name2 @2 :UInt64;
  name3 @3 :UInt64;
  length @4 :UInt32;
}
struct PlaceExisting {
  index @0 :UInt32;  # into `chunks` of the request
  chunk @1 :Chunk;
}
struct PlaceReply {
  existing @0 :List(PlaceExisting);
  grants @1 :List(Grant);
}

struct Commit {
  # Applies the session's written ranges to the newest version, all at once.
  session @0 :UInt64;
  part @1 :UInt32;  # parts before the last one carry slices only
  last @2 :Bool;
  written @3 :ChunkMap;
  setSize @4 :Bool;     # `sizeBytes` is the size; otherwise the larger of it and the newest size
  sizeBytes @5 :UInt64;
  cutBefore @6 :Bool;   # drop the base's bytes from `cutBytes` on first
  cutBytes @7 :UInt64;
  mtimeNs @8 :Int64;
  abandoned @9 :List(Extent);  # of failed writes: not to be used again before a fence
  end @10 :Bool;               # the session ends with this commit
  naming @11 :NamingState;     # of what is written
  sameAs @12 :UInt64;          # not 0: the content is that drained version's; the file stays what it was
}
struct CommitReply {
  attributes @0 :Attributes;
  conflicts @1 :UInt32;  # slices of others that this commit overwrote
  directory @2 :Attributes;  # of a file that this commit gave its name; otherwise no id
}

struct ResumeSession {
  # To a manager of another epoch: goes on with a session of before, with what it has stored.
  client @0 :UInt64;
  session @1 :UInt64;
  file @2 :UInt64;
  parent @3 :UInt64;       # the name of a file that had no version; 0: it had one
  name @4 :Data;
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  base @8 :UInt64;         # the version that the session goes out from; 0: none
  copies @9 :UInt32;       # as in OpenSession
  part @10 :UInt32;
  last @11 :Bool;
  stored @12 :List(Chunk); # by this session
  held @13 :List(PlaceWanted);
  truncated @14 :Bool;     # its next commit starts from an empty file
  opened @15 :UInt64;      # as OpenSession was answered
  waitsForCopies @16 :Bool; # as in OpenSession
  # Of a file that had no version, what this client has changed: who has come before does not know.
  renamed @17 :Bool;       # the name; parent 0: it has none any more
  changed @18 :Bool;       # attributes: mode, uid and gid, and these
  atimeNs @19 :Int64;
  mtimeNs @20 :Int64;
  xattrs @21 :List(Xattr);
}
struct ResumeSessionReply {
  committed @0 :Bool;      # what is stored is the newest version already
  attributes @1 :Attributes;
}

struct CloseSession {
  # Ends a session; what was not committed is dropped.
  session @0 :UInt64;
  aborted @1 :Bool;         # list the part among the aborted ones
  abortedBytes @2 :UInt64;
  writesInFlight @3 :Bool;  # the grants need a fence
}

# ---- reading -----------------------------------------------------------------------------------

struct GetMap {
  # A page of a version's chunk map. The version is pinned from the first page on.
  client @0 :UInt64;
  file @1 :UInt64;
  version @2 :UInt64;  # 0: the newest
  firstSlice @3 :UInt64;
}
struct GetMapReply {
  attributes @0 :Attributes;  # as of that version
  sliceCount @1 :UInt64;
  page @2 :ChunkMap;
  drainedPath @3 :Data;  # relative to the drain directory; empty: not drained
}

struct GetStripe {
  # The other blocks of a chunk's stripe that can be read.
  client @0 :UInt64;
  at @1 :Extent;  # a copy of the chunk
  name0 @2 :UInt64;
  name1 @3 :UInt64;
  name2 @4 :UInt64;
  name3 @5 :UInt64;
  length @6 :UInt32;
}
struct StripeBlock {
  number @0 :UInt32;
  length @1 :UInt32;
  at @2 :Extent;
}
struct GetStripeReply {
  data @0 :UInt32;  # 0: the chunk is in no stripe
  parity @1 :UInt32;
  number @2 :UInt32;  # of the chunk itself
  blocks @3 :List(StripeBlock);
}

struct Unpin {
  client @0 :UInt64;
  file @1 :UInt64;
  version @2 :UInt64;
}

struct ReportWrongCopy {
  # A copy of a chunk of that version did not match when it was read.
  client @0 :UInt64;
  file @1 :UInt64;
  version @2 :UInt64;
  at @3 :Extent;
}

# ---- drain and administration ------------------------------------------------------------------

struct DrainNow {
  # Files below this one go to the head of the drain's queue.
  below @0 :UInt64;
}
struct DrainNowReply {
  pendingFiles @0 :UInt64;
  pendingBytes @1 :UInt64;
  failedFiles @2 :UInt64;
}

struct AbortedEntry {
  path @0 :Data;
  bytes @1 :UInt64;
  whenNs @2 :Int64;
  hostName @3 :Text;
}
struct ListAbortedReply {
  entries @0 :List(AbortedEntry);
}

struct GetDebt {
  # What copies a version still lacks.
  file @0 :UInt64;
  version @1 :UInt64;
}
struct GetDebtReply {
  chunks @0 :UInt64;
  bytes @1 :UInt64;
  impossible @2 :Bool;  # there are fewer benefactors than copies
}

struct ConfirmDrained {
  # Have it looked up whether these files are in the drain directory as they were drained.
  files @0 :List(UInt64);
}
struct ConfirmDrainedReply {
  undrained @0 :List(UInt32);  # indexes of files: not drained, or not there any more
  missing @1 :List(UInt32);    # of the others, those that somebody has removed or changed
}

struct Scrub {
  # Starts a pass over all content, or asks how far it is.
  start @0 :Bool;
}
struct ScrubReply {
  running @0 :Bool;
  passes @1 :UInt64;          # whole ones in this epoch
  checkedBytes @2 :UInt64;    # in this epoch
  passBytes @3 :UInt64;       # checked in the current or last pass
  wrongChunks @4 :UInt64;     # found in this epoch
  repairedChunks @5 :UInt64;  # made again from another copy
  rateBytesPerS @6 :UInt64;   # of each benefactor; 0: it does not run by itself
}

struct CheckMetadataReply {
  # All metadata were walked, and what is counted was counted again.
  broken @0 :List(Text);  # a sentence for each broken rule; the first ones
  brokenCount @1 :UInt64;
  files @2 :UInt64;
  chunks @3 :UInt64;
  references @4 :UInt64;
}

struct CollectGarbage {
  # Find space that nothing uses and nobody may write to.
  execute @0 :Bool;  # give it back
  round @1 :UInt64;  # not 0: begin nothing, and tell of that round
}
struct GarbageRange {
  benefactor @0 :UInt64;
  offset @1 :UInt64;
  length @2 :UInt64;
}
struct GarbageArena {
  # What one benefactor has reported. Extents are counted.
  benefactor @0 :UInt64;
  whole @1 :Bool;               # all of the arena was looked at
  garbageExtents @2 :UInt64;    # nothing refers to them
  garbageBytes @3 :UInt64;
  forgottenExtents @4 :UInt64;  # of those: they are no more
  usedExtents @5 :UInt64;       # in space that chunks have
  grantedExtents @6 :UInt64;    # of open sessions
  waitingExtents @7 :UInt64;    # until a client is fenced or the journal is durable
  copyingExtents @8 :UInt64;    # in space that something is copied to
  missingExtents @9 :UInt64;    # places where a chunk should be, and no header is
}
struct CollectGarbageReply {
  leaked @0 :List(GarbageRange);  # the first ones
  leakedBytes @1 :UInt64;
  waitingBytes @2 :UInt64;      # kept until a client is fenced
  grantedBytes @3 :UInt64;      # of open sessions
  usedBytes @4 :UInt64;
  freeBytes @5 :UInt64;
  round @6 :UInt64;             # that was begun, or asked for
  ended @7 :Bool;               # of the round: arenas is what came of it, or of a later one
  arenas @8 :List(GarbageArena);  # the first ones
}

# ---- manager to benefactor ---------------------------------------------------------------------

struct FenceClient {
  # No write of that client may change the arena after the answer `fenced`.
  client @0 :UInt64;
  andOlder @1 :Bool;  # all clients with smaller numbers, too
}
struct FenceClientReply {
  fenced @0 :Bool;  # false: not yet, ask again
}

struct DrainPiece {
  # A piece of a file that this benefactor holds.
  fileOffset @0 :UInt64;
  extentOffset @1 :UInt64;  # all ones: not in memory any more, read from basePath instead
  length @2 :UInt32;
  chunkOffset @3 :UInt32;
  chunkLength @4 :UInt32;
  crc @5 :UInt32;  # of the whole chunk
  name0 @6 :UInt64;
  name1 @7 :UInt64;
  name2 @8 :UInt64;
  name3 @9 :UInt64;
}
struct DrainPieces {
  # Write into the temporary file of (file, number), make durable, read back, compare.
  file @0 :UInt64;
  number @1 :UInt64;
  pieces @2 :List(DrainPiece);
  basePath @3 :Data;  # relative to the drain directory: where pieces without an extent are read
}
struct DrainPiecesReply {
  corrupt @0 :List(UInt32);  # indexes of pieces whose chunk fails its checksum
}

struct DrainFinish {
  # Give the temporary file its size, attributes and name.
  file @0 :UInt64;
  number @1 :UInt64;
  path @2 :Data;  # relative to the drain directory
  sizeBytes @3 :UInt64;
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  mtimeNs @7 :Int64;
}

struct DrainedFile {
  path @0 :Data;  # relative to the drain directory
  sizeBytes @1 :UInt64;
  mtimeNs @2 :Int64;
  uid @3 :UInt32 = 0xffffffff;  # the owner in the pool; the default: not known
}
struct FindDrained {
  # Look whether these files are there as DrainFinish has left them.
  files @0 :List(DrainedFile);
}
struct FindDrainedReply {
  missing @0 :List(UInt32);  # indexes of files: not there, or something else
}

enum MirrorKind {
  invalid @0;
  rename @1;
  unlink @2;
  makeDirectory @3;
  removeDirectory @4;
  symlink @5;
  attributes @6;
  dropTemporary @7;  # of (file, number)
  setAside @8;  # another name: that of the temporary file (file, number)
}

struct MirrorChange {
  # Repeat a change of the namespace in the drain directory.
  kind @0 :MirrorKind;
  path @1 :Data;
  otherPath @2 :Data;  # rename: the new path (empty: the temporary file); symlink: the target
  file @3 :UInt64;
  number @4 :UInt64;
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  mtimeNs @8 :Int64;
  uidBefore @9 :UInt32 = 0xffffffff;  # attributes: the owner before the change
}

struct Move {
  fromOffset @0 :UInt64;
  toOffset @1 :UInt64;
  length @2 :UInt32;  # of the content; the header moves along
  crc @3 :UInt32;
}
struct MoveExtents {
  # Copy extents inside the arena, each checked against its crc.
  moves @0 :List(Move);
}
struct MoveExtentsReply {
  failed @0 :List(UInt32);  # indexes of moves
}

struct ExtentCopy {
  fromOffset @0 :UInt64;
  toOffset @1 :UInt64;
  length @2 :UInt32;  # of the content; the header goes along
  crc @3 :UInt32;
  name0 @4 :UInt64;
  name1 @5 :UInt64;
  name2 @6 :UInt64;
  name3 @7 :UInt64;
}
struct CopyExtents {
  # Read extents of another benefactor into the own arena and check them. Answered in order.
  client @0 :UInt64;  # the number to attach under
  source @1 :BenefactorInfo;
  copies @2 :List(ExtentCopy);
}
struct CopyExtentsReply {
  failed @0 :List(UInt32);   # indexes of copies: the source could not be read
  corrupt @1 :List(UInt32);  # what came is not that chunk
}

struct StripeInput {
  number @0 :UInt32;  # of the block in the stripe: data from 0 on, then parity
  source @1 :UInt32;  # index into sources
  offset @2 :UInt64;
  length @3 :UInt32;
  crc @4 :UInt32;
}
struct StripeOutput {
  number @0 :UInt32;
  toOffset @1 :UInt64;
  length @2 :UInt32;
  name0 @3 :UInt64;
  name1 @4 :UInt64;
  name2 @5 :UInt64;
  name3 @6 :UInt64;
}
struct BuildStripe {
  # Make blocks of a stripe from others of it: parity from data, or what was lost from what is left.
  client @0 :UInt64;  # the number to attach under
  data @1 :UInt32;
  parity @2 :UInt32;
  sources @3 :List(BenefactorInfo);
  inputs @4 :List(StripeInput);    # as many as there is data
  outputs @5 :List(StripeOutput);  # none: only the answer is wanted
}
struct BuildStripeReply {
  failed @0 :List(UInt32);   # indexes of inputs that could not be read
  corrupt @1 :List(UInt32);  # that are not what they should be
  crcs @2 :List(UInt32);     # of the outputs; none when an input was not there
}

struct KeepLog {
  # Bytes of the metadata log.
  epoch @0 :UInt64;
  begins @1 :Bool;      # a new log
  offset @2 :UInt64;    # of bytes in it
  sequence @3 :UInt64;  # of the newest record, which ends with bytes; 0: goes on
  bytes @4 :Data;
}
struct ReadLog {
  # The log that counts.
  offset @0 :UInt64;
  promise @1 :UInt64;  # nothing of an earlier epoch is kept from now on; 0: no promise
}
struct ReadLogReply {
  bytes @0 :Data;
  more @1 :Bool;
}

struct CheckedExtent {
  offset @0 :UInt64;
  length @1 :UInt32;
  crc @2 :UInt32;
  name0 @3 :UInt64;
  name1 @4 :UInt64;
  name2 @5 :UInt64;
  name3 @6 :UInt64;
}
struct CheckExtents {
  # Look whether these chunks are there, whole.
  extents @0 :List(CheckedExtent);
}
struct CheckExtentsReply {
  corrupt @0 :List(UInt32);  # indexes of extents
}

struct FoundExtent {
  # A header of an extent, as a benefactor sees it in its arena.
  offset @0 :UInt64;
  length @1 :UInt32;     # of the content
  headerCrc @2 :UInt32;  # CRC32C of the header's bytes
}
struct ReportExtents {
  # Which headers are in [begin, end) of the arena.
  begin @0 :UInt64;
  end @1 :UInt64;
}
struct ReportExtentsReply {
  extents @0 :List(FoundExtent);  # ascending
  end @1 :UInt64;                 # all from begin to here
}
struct ForgetExtents {
  # Clear these headers.
  extents @0 :List(FoundExtent);
}
struct ForgetExtentsReply {
  forgotten @0 :UInt32;  # the others were not there any more
}

# ---- client to benefactor ----------------------------------------------------------------------

struct Attach {
  # The first message on a link to a benefactor.
  secret @0 :Secret;      # not sent any more, and not looked at
  client @1 :UInt64;
  benefactor @2 :UInt64;  # who the client thinks it speaks to
}
struct AttachReply {
  # The key of the arena.
  key @0 :UInt64;
  base @1 :UInt64;
  length @2 :UInt64;
}

# ---- notices: manager to client ----------------------------------------------------------------

struct InvalidateEntry {
  directory @0 :UInt64;
  name @1 :Data;
}
struct Invalidate {
  # What a client may have cached and is no longer so.
  entries @0 :List(InvalidateEntry);
  files @1 :List(UInt64);  # attributes changed, or a new version was committed
  benefactorsChanged @2 :Bool;
  fenced @3 :List(UInt64);  # sessions that the manager ended
}
