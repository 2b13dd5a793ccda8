@0x96264a81ba849d50;
# The messages of stdchk. docs/internals/protocol.md tells who sends what when, core/schema/README.md how to add
# a message or a field.

# The same file is the wire contract. A message on a link is an Envelope in Cap'n Proto's standard framing
# with exactly one segment, at most 256 KiB (core/base/limits.h). Rules for changes:
#
# - Fields and members of unions are only ever added, with the next free number. A number is never reused.
# - A receiver ignores fields that it does not know. A sender that does not know a field sends 0, false or an
#   empty value. A new field must use this value for the behaviour of senders without the field.
#
# Conventions: an id is a number from 1 on, and 0 is "none". Times are nanoseconds since 1970-01-01 UTC,
# durations are nanoseconds. File names, paths and link targets are Data without the byte 0; text for
# people and host names are Text. A message that breaks a limit is refused as a whole. The text order of
# fields is the order of the C++ members; the numbers are the wire's.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("stdchk::msg::wire");

using Say = import "/core/schema/annotations.capnp";
using title = Say.title;
using type = Say.type;
using items = Say.items;
using max = Say.max;
using initial = Say.initial;
$Say.namespace("stdchk::msg");
$Say.include("<string>");
$Say.include("<utility>");
$Say.include("<variant>");
$Say.include("<vector>");
$Say.include("core/base/one_of.h");
$Say.include("core/policy/policy.h");
$Say.include("core/base/result.h");
$Say.include("core/values/types.h");

using Values = import "/core/values/values.capnp";
using Attributes = Values.Attributes;
using Chunk = Values.Chunk;
using ChunkMap = Values.ChunkMap;
using Extent = Values.Extent;
using Grant = Values.Grant;
using Hole = Values.Hole;

# ---- properties of requests --------------------------------------------------------------------

enum RequestKind {
  # The effect of a request. It decides whether a client may repeat the request, and under which number.
  asks @0;
  # Changes nothing that outlives the client: repeated under the client's present number.
  instructs @1;
  # Starts or looks at something. Twice has the effect of once: repeated like `kAsks`.
  opens @2;
  # Opens a session. A session of an earlier client number has ended: repeated like `kAsks`.
  changesNames @3;
  # Changes names, attributes, or policies: done once. A later manager recognises it by the client's number
  # at the time of the call, and by the call (docs/decisions/0032).
  ofSession @4;
  # Changes what a session has: done once, and only under the session's client number.
  ofClient @5;
  # Changes the client's state, or its session's: repeated under the same client number only.
  ofLease @6;       # a client reports that it lives, or that it ends
  ofMember @7;      # registers a member, or comes from a member that is no client
  toBenefactor @8;  # not for a manager
  toNode @9;        # for a daemon of containers
}
annotation kind @0xde5b38a17c02f496 (struct) :RequestKind;
# Each request has its kind as the constant kKind.

enum Route {
  # The sender and the receiver of a request.
  clientToManager @0;
  benefactorToManager @1;
  standbyToManager @2;
  managerToBenefactor @3;
  readerToBenefactor @4;  # the reader is a client, or a benefactor that copies
  coordinatorToNode @5;   # from a job's coordinator to the daemon of containers on a node
}
annotation route @0x8f14c7e95a3d0b62 (struct) :Route;
# Each request has its route as the constant kRoute.

# ---- parts of messages -------------------------------------------------------------------------

struct Secret $Say.byHand {
  # A 128-bit secret of messages of earlier versions. No message has it any more.
  high @0 :UInt64;
  low @1 :UInt64;
}

struct PolicySetting $type("stdchk::PolicySetting") {
  key @0 :UInt16 $type("PolicyKey");  # an unknown key is kept
  value @1 :UInt64;
}
struct Policy $type("stdchk::Policy") {
  settings @0 :List(PolicySetting) $max("kPolicySettingsMax");
}

struct Xattr $type("std::pair<std::string, std::string>") {
  name @0 :Data $Say.member("first") $max("kNameBytesMax");
  value @1 :Data $Say.member("second") $Say.anyBytes $max("kXattrBytesMax");
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
  id @0 :UInt64 $type("BenefactorId");
  addresses @1 :List(Text) $max("kAddressesMax") $Say.itemMax("kAddressBytesMax");
  # An address for each transport, the best transport first.
  hostToken @2 :Text $max("kNameBytesMax");  # with equal tokens shared memory works between two peers
  hostName @3 :Text $max("kNameBytesMax");
  arenaBytes @4 :UInt64;
  freeBytes @5 :UInt64;
  state @6 :BenefactorState;
  pid @7 :Int64;
  member @8 :Data $Say.anyBytes $max("kMemberIdBytes");
  # The benefactor's member id. This member and the following ones let only the receiver prove itself to the
  # benefactor. They are empty where the receiver opens no links to it, and where links prove nothing.
  ticketNumber @9 :UInt64;  # the client number to attach under
  ticketKey @10 :Data $Say.anyBytes $max("kKeyBytes");  # the key of links under that number
}

struct PoolConfig {
  # The settings of the whole pool, fixed when it is started.
  chunkBytes @0 :UInt32;
  stripeWidth @1 :UInt32;
  naming @2 :Values.Naming $initial("Naming::kAuto");
  drainDirectory @3 :Data $max("kPathBytesMax");  # absolute; empty: there is none
  drainRateBytesPerS @4 :UInt64;                  # of each benefactor; 0: not limited
  contentCuts @5 :Bool;  # with `naming`: the content decides where chunks end
  copies @6 :UInt32;
  # The number of a Redundancy (core/policy/redundancy.h), where nothing else is asked for; 0: one copy.
}

struct RegisterClient $title("register client") $kind(ofMember) $route(clientToManager) {
  secret @0 :Secret $Say.reserved;  # of earlier versions: now the link proves its ends
  hostToken @1 :Text $max("kNameBytesMax");
  hostName @2 :Text $max("kNameBytesMax");
  pid @3 :Int64;
  role @4 :Text $max("kNameBytesMax");  # "mount", "tool", "library"
  resume @5 :UInt64 $type("ClientId");
  # After a lost link: the client's number before. The manager keeps that number, with its sessions and
  # pins, while its lease lasts. Otherwise the reply has a new number, and everything of the old one ended.
  newestEpoch @6 :UInt64 $type("Epoch");  # the highest epoch that the client has heard of
  proof @7 :Data $Say.anyBytes $max("kKeyBytes");
  # The proof of the reply that gave the number `resume`. Without it `resume` and `newest_epoch` count as
  # none.
  struct Reply {
    client @0 :UInt64 $type("ClientId");  # the number to use from now on
    epoch @1 :UInt64 $type("Epoch");
    config @2 :PoolConfig;
    benefactors @3 :List(BenefactorInfo) $max("kListItemsMax");
    proof @4 :Data $Say.anyBytes $max("kKeyBytes");
    # Proves that the manager gave this number to this member. Only managers of the pool can make this proof.
  }
}

struct WriterTotals {
  # Totals of a client's writes since the client started. Each number only grows: a report may be lost, or
  # come twice.
  first @0 :UInt64 $type("ClientId");
  # The first number that the client had. It stays the same when the client gets another number.
  closedBytes @1 :UInt64;     # of files whose close, or other commit, has returned (OT)
  openToCloseNs @2 :UInt64;   # sum over those files
  committedBytes @3 :UInt64;  # of files that are committed (AT)
  openToCommitNs @4 :UInt64;  # sum over those files
  longestCallNs @5 :UInt64;   # the longest write, fsync or close
  namedBytes @6 :UInt64;      # of chunks that got a name
  equalBytes @7 :UInt64;      # of named chunks that the pool already stored
  namingNs @8 :UInt64;        # processor time for the names
}

struct ReaderTotals {
  # Bytes that a client's readers got since the client started, by their source. The first read of fetched
  # bytes counts for their source, further reads count for the cache. Each number only grows.
  poolBytes @0 :UInt64;     # from benefactors, or rebuilt from stripes
  cachedBytes @1 :UInt64;   # read before
  drainedBytes @2 :UInt64;  # from the drain directory
}

struct ClientHeartbeat $title("client heartbeat") $kind(ofLease) $route(clientToManager) {
  # Renews the lease of the client and those of all its sessions and pins.
  client @0 :UInt64 $type("ClientId");
  totals @1 :WriterTotals;
  reads @2 :ReaderTotals;
  readerCount @3 :UInt64;  # opens for reading that are not closed; a file may count several times
  struct Reply {}
}

struct GoodbyeClient $title("goodbye") $kind(ofLease) $route(clientToManager) {
  # The client ends: its sessions are aborted, its pins released.
  client @0 :UInt64 $type("ClientId");
  totals @1 :WriterTotals;  # the final totals
  reads @2 :ReaderTotals;
  struct Reply {}
}

struct ListBenefactors $title("list benefactors") $kind(asks) $route(clientToManager) {
  struct Reply {
    benefactors @0 :List(BenefactorInfo) $max("kListItemsMax");
  }
}

struct RegisterBenefactor $title("register benefactor") $kind(ofMember) $route(benefactorToManager) {
  secret @0 :Secret $Say.reserved;  # of earlier versions: now the link proves its ends
  lifeHigh @1 :UInt64;  # random bits made with the arena, which identify this life of it
  lifeLow @2 :UInt64;   # made of these bits and the member's key: no other member has this life
  addresses @3 :List(Text) $max("kAddressesMax") $Say.itemMax("kAddressBytesMax");
  hostToken @4 :Text $max("kNameBytesMax");
  hostName @5 :Text $max("kNameBytesMax");
  arenaBytes @6 :UInt64;
  pid @7 :Int64;
  newestEpoch @8 :UInt64 $type("Epoch");  # the highest epoch that the benefactor has heard of
  logBytesMax @9 :UInt64;                 # of a metadata log that it can keep; 0: it keeps none
  logEpoch @10 :UInt64 $type("Epoch");    # of its whole metadata log; none: it has no log
  logSequence @11 :UInt64;                # the newest record in that log
  newestSequence @12 :UInt64;
  # The newest record of `newest_epoch` that the benefactor knows to be answered.
  benefactor @13 :UInt64 $type("BenefactorId");  # its number in `newest_epoch`; none: it is new
  proof @14 :Data $Say.anyBytes $max("kKeyBytes");
  # The proof of a reply that gave `newest_epoch`, `newest_sequence` and `benefactor`. Without the proof the
  # manager ignores these members and the log.
  struct Reply {
    benefactor @0 :UInt64 $type("BenefactorId");
    epoch @1 :UInt64 $type("Epoch");
    firstClient @3 :UInt64 $type("ClientId");
    # Smaller client numbers are of earlier epochs: such clients may not attach any more.
    config @2 :PoolConfig;
    proof @4 :Data $Say.anyBytes $max("kKeyBytes");
    # Proves that the manager gave `benefactor` and `epoch` to this member.
  }
}

struct BenefactorHeartbeat $title("benefactor heartbeat") $kind(ofMember) $route(benefactorToManager) {
  benefactor @0 :UInt64 $type("BenefactorId");
  leaving @1 :Bool;  # it wants to end: chunks that only it has are copied elsewhere first
  struct Reply {
    mayGo @0 :Bool;          # nothing is left that could be copied elsewhere
    logSequence @1 :UInt64;  # the newest record that was answered in this epoch
    proof @2 :Data $Say.anyBytes $max("kKeyBytes");
    # Proves that the manager told this member of that record.
  }
}

struct FollowManager $title("follow") $kind(ofMember) $route(standbyToManager) {
  # From a manager's standby, repeated on a link of its own. The first sender becomes the standby. Other
  # senders get kExists while a standby exists.
  secret @0 :Secret $Say.reserved;  # of earlier versions: now the link proves its ends
  address @1 :Text $max("kAddressBytesMax");  # where the standby accepts links
  newestEpoch @2 :UInt64 $type("Epoch");      # the highest known epoch, or the sender's own
  seen @3 :UInt64;                            # `number` of the newest reply that it has, of that epoch
  struct Reply {
    epoch @0 :UInt64 $type("Epoch");
    number @1 :UInt64;
    quorum @2 :List(UInt64) $items("BenefactorId") $max("kListItemsMax");
    # The quorum of a takeover: more than half of these benefactors must have lost the manager first.
  }
}

# ---- names and attributes ----------------------------------------------------------------------

struct Lookup $title("lookup") $kind(asks) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct GetAttributes $title("getattr") $kind(asks) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct DirectoryEntry {
  name @0 :Data $max("kNameBytesMax");
  attributes @1 :Attributes;
}

struct ReadDirectory $title("readdir") $kind(asks) $route(clientToManager) {
  # Asks for a page of entries, in the order of their names. From then on the client watches the directory:
  # the manager sends it an Invalidate when the directory changes.
  client @0 :UInt64 $type("ClientId");
  directory @1 :UInt64 $type("FileId");
  after @2 :Data $max("kNameBytesMax");  # the last name of the previous page; empty: the first page
  struct Reply {
    entries @0 :List(DirectoryEntry) $max("kDirectoryPageMax");
    more @1 :Bool;
    parent @2 :UInt64 $type("FileId");  # of the directory itself
  }
}

struct SetAttributes $title("setattr") $kind(changesNames) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  mask @2 :UInt32;  # SetMask bits: which of the members below are set
  mode @3 :UInt32;
  uid @4 :UInt32;
  gid @5 :UInt32;
  atimeNs @6 :Int64;
  mtimeNs @7 :Int64;
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct MakeDirectory $title("mkdir") $kind(changesNames) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  mode @3 :UInt32;
  uid @4 :UInt32;
  gid @5 :UInt32;
  unmasked @6 :UInt32;  # the mode before the umask was applied, for a directory with a default access list; 0: `mode`
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct MakeSymlink $title("symlink") $kind(changesNames) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  target @3 :Data $max("kSymlinkBytesMax");
  uid @4 :UInt32;
  gid @5 :UInt32;
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct ReadSymlink $title("readlink") $kind(asks) $route(clientToManager) {
  file @0 :UInt64 $type("FileId");
  struct Reply {
    target @0 :Data $max("kSymlinkBytesMax");
  }
}

struct MakeNode $title("mknod") $kind(changesNames) $route(clientToManager) {
  # Makes a FIFO, a socket, or a device. The pool stores only its attributes: the kernel of each host opens it.
  client @0 :UInt64 $type("ClientId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  type @3 :Values.FileType;
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  device @7 :UInt32;  # of a device: its number; otherwise 0
  unmasked @8 :UInt32;  # as in MakeDirectory
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct MakeLink $title("link") $kind(changesNames) $route(clientToManager) {
  # Gives a committed file, which is no directory, one more name (a hard link). A file that its client has made without
  # a name gets a pending name.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  parent @2 :UInt64 $type("FileId");
  name @3 :Data $max("kNameBytesMax");
  struct Reply {
    attributes @0 :Attributes;
  }
}

struct Remove $title("remove") $kind(changesNames) $route(clientToManager) {
  # Removes the name of a file, or an empty directory. The content of a file with sessions or pins stays
  # until the last of them ends.
  client @0 :UInt64 $type("ClientId");
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  directory @3 :Bool;  # true: the name is an empty directory's; false: a file's
  struct Reply {
    file @0 :UInt64 $type("FileId");
    directory @1 :Attributes $Say.presentIf("id");
    # The parent directory after the change. Without an id: nothing durable has changed.
    namesLeft @2 :UInt32;  # the names that the file still has
  }
}

struct Rename $title("rename") $kind(changesNames) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  fromParent @1 :UInt64 $type("FileId");
  fromName @2 :Data $max("kNameBytesMax");
  toParent @3 :UInt64 $type("FileId");
  toName @4 :Data $max("kNameBytesMax");
  noReplace @5 :Bool;
  exchange @6 :Bool;
  struct Reply {
    replaced @0 :UInt64 $type("FileId");  # the file that lost its name; none: no file did
    namesLeft @1 :UInt32;                 # the names that this file still has
    moved @2 :UInt64 $type("FileId");     # the file that was renamed
  }
}

enum XattrMode {
  either @0;
  create @1;
  replace @2;
}

struct SetXattr $title("setxattr") $kind(changesNames) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  value @3 :Data $Say.anyBytes $max("kXattrBytesMax");
  mode @4 :XattrMode;
  remove @5 :Bool;
  struct Reply {
    attributes @0 :Attributes $Say.presentIf("id");
    # The file after the change. An earlier manager sends no attributes: then there is no id.
  }
}

struct GetXattrs $title("getxattr") $kind(asks) $route(clientToManager) {
  file @0 :UInt64 $type("FileId");
  struct Reply {
    attributes @0 :List(Xattr) $max("kListItemsMax");
  }
}

struct GetPolicy $title("get policy") $kind(asks) $route(clientToManager) {
  # Asks for the policy of a folder, or for the policy that holds for a file.
  file @0 :UInt64 $type("FileId");
  struct Reply {
    own @0 :Policy;        # the settings of the folder itself
    effective @1 :Policy;  # the folder's own settings, then inherited settings, then the pool's
  }
}

struct SetPolicy $title("set policy") $kind(changesNames) $route(clientToManager) {
  # Changes the settings of a folder. A value of kPolicyInherit removes a setting.
  client @0 :UInt64 $type("ClientId");
  directory @1 :UInt64 $type("FileId");
  changes @2 :Policy;
  struct Reply {}
}

struct ListSets $title("list sets") $kind(asks) $route(clientToManager) {
  # Asks for the sets A.*.Tj of a folder.
  directory @0 :UInt64 $type("FileId");
  struct Entry {
    application @0 :Data $max("kNameBytesMax");
    timestep @1 :UInt64;
    images @2 :UInt64;
    drained @3 :UInt64;  # images that are drained
    bytes @4 :UInt64;
    newestNs @5 :Int64;
    complete @6 :Bool;
    pinned @7 :Bool;
    latest @8 :Bool;
    problem @9 :Data $max("kSetProblemBytesMax");
    # For people: what keeps the set from being complete. Empty for complete sets, and for sets after the
    # first kSetProblemsMax.
  }
  struct Reply {
    imagesWanted @0 :UInt64;  # images of a whole set; 0: not known
    sets @1 :List(Entry) $max("kSetsMax");  # the newest first
  }
}

# ---- leases on directories ---------------------------------------------------------------------

struct LeaseDirectory $title("lease directory") $kind(instructs) $route(clientToManager) {
  # Asks for a lease on a directory that this client alone uses. Until the lease ends, other clients' requests about
  # the directory wait. The holder may answer changes of names itself, and sends them with ApplyNames
  # (docs/decisions/0075-names-in-batches.md). It fetches the names with ReadDirectory.
  client @0 :UInt64 $type("ClientId");
  directory @1 :UInt64 $type("FileId");
  numbers @2 :UInt32;  # how many numbers for new files the client wants
  struct Reply {
    granted @0 :Bool;  # false: others use the directory, or the manager itself changes its names
    holder @1 :UInt64;
    # Names all leases that the client has, until it loses them. Later leases of the client have another number.
    firstNumber @2 :UInt64 $type("FileId");  # of the numbers for new files
    numberCount @3 :UInt32;
    nameBytesMax @4 :UInt32;  # a longer name in this directory is refused
    wallNs @5 :Int64;         # the manager's time, from which the client counts on
    newestBatch @6 :UInt64;   # The holder's next batch has the number behind it.
  }
}

enum NameChangeKind {
  # The kind of a change in a batch. Which fields of NameChange count, stands behind each.
  invalid @0;
  addFile @1;          # a regular file without bytes: parent, name, file, mode, uid, gid
  addDirectory @2;     # the same, and `lease`
  addSymlink @3;       # the same without mode, and `target`
  removeFile @4;       # any name but a directory's: parent, name, file
  removeDirectory @5;  # parent, name, file
  rename @6;           # parent, name, file; to `toParent`, `toName`, which may exist
  attributes @7;       # file, mask, and what the mask names
}

struct NameChange {
  # A change that the holder of a directory has answered already.
  kind @0 :NameChangeKind;
  parent @1 :UInt64 $type("FileId");
  name @2 :Data $max("kNameBytesMax");
  file @3 :UInt64 $type("FileId");
  # The number of the new file, or of the file that is changed. The manager compares it with what it knows.
  toParent @4 :UInt64 $type("FileId");
  toName @5 :Data $max("kNameBytesMax");
  mask @6 :UInt32;  # SetMask bits, as in SetAttributes
  mode @7 :UInt32;
  uid @8 :UInt32;
  gid @9 :UInt32;
  atimeNs @10 :Int64;
  mtimeNs @11 :Int64;
  timeNs @12 :Int64;  # when the holder answered: the file's and the directory's new time of change
  target @13 :Data $max("kSymlinkBytesMax");
  lease @14 :Bool;  # The new directory is leased to the holder, too.
}

struct ApplyNames $title("apply names") $kind(instructs) $route(clientToManager) {
  # The holder's changes since its last batch, in order. The answer comes when they are durable. A batch with the
  # number of an earlier one is answered, and not applied again. kStale means that the leases have ended. Then the
  # changes of the batch are lost.
  client @0 :UInt64 $type("ClientId");
  holder @1 :UInt64;  # as in the reply to LeaseDirectory, perhaps that of an earlier manager
  number @2 :UInt64;  # counts the holder's batches, over all its directories, from 1 on
  changes @3 :List(NameChange) $max("kDirectoryPageMax");
  numbers @4 :UInt32;  # how many more numbers for new files the client wants
  struct Reply {
    firstNumber @0 :UInt64 $type("FileId");
    numberCount @1 :UInt32;
  }
}

struct ReturnLease $title("return lease") $kind(instructs) $route(clientToManager) {
  # Ends leases, behind the last ApplyNames. The manager answers when that is durable; others' requests go on then.
  client @0 :UInt64 $type("ClientId");
  holder @1 :UInt64;  # 0: the client does not know the number; all directories have the same
  directories @2 :List(UInt64) $items("FileId") $max("kListItemsMax");
  struct Reply {}
}

# ---- locks -------------------------------------------------------------------------------------

enum LockSpace {
  # Locks of the two kinds do not see each other, as on a local file system.
  flock @0;   # of flock(2): of an open file, on the whole file
  record @1;  # of fcntl(2): of a process, on a range of bytes
}

enum LockKind {
  none @0;
  shared @1;
  exclusive @2;
}

enum LockOutcome {
  granted @0;
  waits @1;      # The request is in the queue. The client repeats it, or sends CancelLock.
  refused @2;    # another owner holds a lock that excludes it
  deadlock @3;   # its owner would wait for itself
  recovering @4; # clients of an earlier manager may still claim their locks: repeat the request
}

struct SetLock $title("lock") $kind(ofClient) $route(clientToManager) {
  # Takes, changes, or releases a lock on a range of a file. The locks of a client end with its lease.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  space @2 :LockSpace;
  kind @3 :LockKind;     # none: releases
  owner @4 :UInt64;      # the client's number for the process or the open file that has the lock
  pid @5 :UInt32;        # for people and for F_GETLK
  first @6 :UInt64;      # the first byte of the range
  last @7 :UInt64;       # the last byte of the range
  ticket @8 :UInt64;     # Not 0: wait. The client's number for this wait, the same in each repeat.
  claims @9 :Bool;       # the client held this lock when it lost the manager's predecessor
  struct Reply {
    outcome @0 :LockOutcome;
  }
}

struct CancelLock $title("cancel lock") $kind(ofClient) $route(clientToManager) {
  # Ends a wait for a lock. When the lock was granted meanwhile, it stays: the client releases it.
  client @0 :UInt64 $type("ClientId");
  ticket @1 :UInt64;
  struct Reply {}
}

struct GetLock $title("get lock") $kind(asks) $route(clientToManager) {
  # Asks for a lock that excludes this one, as F_GETLK does.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  space @2 :LockSpace;
  kind @3 :LockKind;
  owner @4 :UInt64;
  first @5 :UInt64;
  last @6 :UInt64;
  struct Reply {
    kind @0 :LockKind;  # none: no lock excludes it
    first @1 :UInt64;
    last @2 :UInt64;
    pid @3 :UInt32;     # 0: of a process behind another client
  }
}

# ---- administration ----------------------------------------------------------------------------

struct Scrub $title("scrub") $kind(instructs) $route(clientToManager) {
  # Starts a pass over all content, or asks for the progress.
  start @0 :Bool;
  struct Reply {
    running @0 :Bool;
    passes @1 :UInt64;          # whole passes in this epoch
    checkedBytes @2 :UInt64;    # in this epoch
    passBytes @3 :UInt64;       # checked in the current or last pass
    wrongChunks @4 :UInt64;     # found in this epoch
    repairedChunks @5 :UInt64;  # replaced by a copy of another benefactor's
    rateBytesPerS @6 :UInt64;   # of each benefactor; 0: no pass starts by itself
  }
}

struct PoolTotals {
  # The figures of the pool's report card, since the pool began (docs/guide/monitoring.md).
  images @0 :UInt64;  # files that got their first bytes, or were written anew; survives a restart
  writtenBytes @1 :UInt64;   # written by all committed versions; survives a restart of the manager
  storedBytes @2 :UInt64;    # of these, what the pool did not already store; survives a restart
  drainedImages @3 :UInt64;  # survives a restart of the manager
  drainedBytes @4 :UInt64;   # survives a restart of the manager
  writers @5 :WriterTotals;
  # Sum over all clients; `first` is none. Each client reports its totals to every manager in full. All
  # further members count from the start of this manager.
  atRiskNs @6 :UInt64;       # time with an image that the loss of one benefactor would destroy
  sets @7 :UInt64;           # sets that another set of their application followed
  setsOvertaken @8 :UInt64;  # of these, sets not drained when the next set began
  spaceWaits @9 :UInt64;     # writers that had to wait for space
  spaceWaitNs @10 :UInt64;   # sum of these waits
  fullestPermille @11 :UInt32;  # the largest share of the lent memory that was in use
  readers @12 :ReaderTotals;    # sum over all clients
}

struct StatPool $title("statfs") $kind(asks) $route(clientToManager) {
  struct Reply {
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
    epoch @13 :UInt64 $type("Epoch");
    pid @14 :Int64;
    debtChunks @15 :UInt64;  # with fewer copies than they should have
    debtBytes @16 :UInt64;   # of the missing copies
    lostChunks @17 :UInt64;  # without a copy, and not drained
    copiesMade @18 :UInt64;  # in this epoch
    copiedBytes @19 :UInt64;
    scrub @20 :Scrub.Reply;
    stripes @21 :UInt64;        # groups of chunks that parity protects together
    parityBytes @22 :UInt64;    # of the stripes' parity blocks
    rebuiltChunks @23 :UInt64;  # made again from their stripes, in this epoch
    logCopies @24 :UInt32;      # benefactors whose metadata log has every answered record
    logCopiesWanted @25 :UInt32;
    standby @26 :Text $max("kAddressBytesMax");  # its address; empty: there is none
    standbyFollows @27 :Bool;                    # the standby was heard within limits::kLease
    totals @28 :PoolTotals;
    readerCount @29 :UInt64;  # files that are open for reading, as clients last reported
    logBytes @30 :UInt64;     # of the longest metadata log on a benefactor
    logBytesNeeded @31 :UInt64;  # memory that a benefactor needs for its log and for the next log
    logBytesMax @32 :UInt64;     # the smallest memory for logs among these benefactors
    logFull @33 :UInt32;         # benefactors whose memory for the log was full
    standbyQuorum @34 :UInt32;  # benefactors in the quorum of a takeover
    standbyReached @35 :UInt32;  # of these, benefactors with a whole log
    logAdvice @36 :List(Text) $max("kListItemsMax") $Say.itemMax("kAddressBytesMax");
    # Sentences about dangers for the metadata, and remedies.
  }
}

# ---- sessions: writing -------------------------------------------------------------------------

struct OpenSession $title("open") $kind(opens) $route(clientToManager) {
  # Opens a session on a file, and makes the file first when `parent` is set. Such a file is pending: only
  # its client sees it until a commit. A second client that creates the same name (without `exclusive`)
  # joins the same pending file.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");    # of an existing file; none: create one
  parent @2 :UInt64 $type("FileId");  # to create: the directory
  name @3 :Data $max("kNameBytesMax");
  exclusive @4 :Bool;
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  truncate @8 :Bool;         # the first commit starts from an empty file
  wantBytes @9 :UInt64;      # of grants to send along; 0: none
  copies @10 :UInt32;        # the number of a Redundancy; 0: as the folder or the pool says
  waitsForCopies @11 :Bool;  # its close waits for all copies, whatever the folder says
  number @12 :UInt64 $type("FileId");
  # To create in a directory that the client holds: the number of the file, of LeaseDirectory. None: the manager
  # chooses it.
  unmasked @13 :UInt32;  # to create: as in MakeDirectory
  unnamed @14 :Bool;
  # To create a file without a name. `parent` says what access list it gets. MakeLink of its client gives it a name,
  # and its first commit makes the name durable.
  struct Reply {
    session @0 :UInt64 $type("SessionId");
    created @1 :Bool;
    attributes @2 :Attributes;
    grants @3 :List(Grant) $max("kGrantsPerReplyMax");
    similarFile @4 :UInt64 $type("FileId");
    # The previous image of the series A.Ni. New chunks may be equal to its chunks.
    similarVersion @5 :UInt64 $type("Version");
    policy @6 :Policy;  # the policy that now holds for the file
    opened @7 :UInt64;  # the newest commit of the pool, for ResumeSession
    places @8 :UInt32;
    # How many grants of different domains each chunk is to be written to; 0: one.
  }
}

struct Place $title("place") $kind(ofClient) $route(clientToManager) {
  # Looks chunks up by name, and asks for space, in one call. Existing chunks are held until the session
  # ends (rule M4).
  session @0 :UInt64 $type("SessionId");
  struct Wanted {
    name :group $type("stdchk::ChunkName") $Say.byHand {
      word0 @0 :UInt64;
      word1 @1 :UInt64;
      word2 @2 :UInt64;
      word3 @3 :UInt64;
    }
    length @4 :UInt32;
  }
  chunks @1 :List(Wanted) $max("kPlaceBatchMax");
  wantBytes @2 :UInt64;  # of grants to send along
  avoid @3 :List(UInt64) $items("BenefactorId") $max("kListItemsMax");  # a write to them has failed
  returned @4 :List(UInt64) $items("GrantId") $max("kListItemsMax");
  # Grants that the client does not use, and that no write in flight uses.
  unitBytes @5 :UInt32;  # each grant must have room for an extent of this size
  beside @6 :List(UInt64) $items("BenefactorId") $max("kCopiesMax");
  # The grants are for further copies of chunks that these benefactors already have, and the manager
  # answers at once. None: the grants are for new chunks.
  struct Existing {
    index @0 :UInt32;  # into `chunks` of the request
    chunk @1 :Chunk;
  }
  struct Reply {
    existing @0 :List(Existing) $max("kPlaceBatchMax");
    grants @1 :List(Grant) $max("kGrantsPerReplyMax");
  }
}

struct Commit $title("commit") $kind(ofSession) $route(clientToManager) {
  # Applies the session's written ranges to the newest version of the file, all at once. A map too long for
  # one message goes ahead in parts with `last` = false; the part with `last` commits. Parts carry an index,
  # so that the manager recognises a repeated part. Members after `written` count in the last part only.
  session @0 :UInt64 $type("SessionId");
  part @1 :UInt32;
  last @2 :Bool $initial("true");
  written @3 :ChunkMap;
  # The slices of this part. Their chunks lie in the session's grants, or a Place answered them as existing.
  setSize @4 :Bool;      # the session truncated or extended the file: `size_bytes` is the new size
  sizeBytes @5 :UInt64;  # without `set_size` the new size is the larger of this and the newest size
  cutBefore @6 :Bool;    # first drop the bytes of the base at and above `cut_bytes`
  cutBytes @7 :UInt64;   # the lowest size that the file had within the session
  mtimeNs @8 :Int64;
  abandoned @9 :List(Extent) $max("kListItemsMax");
  # Extents of failed writes: the space must not be used again before a fence.
  end @10 :Bool;  # the session ends with this commit
  naming @11 :Values.NamingState;  # how the written chunks were named
  sameAs @12 :UInt64 $type("Version");
  # Not 0: `written` is the whole content of this drained version. The content goes back into memory; the
  # file stays what it was, and drained. kStale when that version is not the newest, or not drained.
  appends @13 :Bool;
  # The session only appends: its bytes at and above `appendFrom` go to the end of the newest version.
  appendFrom @14 :UInt64;  # the size of the file when the session began to append
  holes @15 :List(Hole) $max("kHolesMax");
  # First drop the bytes of the base in these ranges, too. They ascend, and do not overlap.
  struct Reply {
    attributes @0 :Attributes;
    conflicts @1 :UInt32;  # slices of others that this commit overwrote since its base
    directory @2 :Attributes $Say.presentIf("id");
    # The directory of a file that this commit gave its name. Without an id: it gave none.
  }
}

struct ResumeSession $title("resume") $kind(ofSession) $route(clientToManager) {
  # Continues an earlier session after a registration with a manager of another epoch. The session keeps its
  # number, and its stored chunks that are not committed. The manager answers once the benefactors have
  # found all of these chunks. In parts like Commit's. The client sends it when the session has no write in
  # flight.
  client @0 :UInt64 $type("ClientId");
  session @1 :UInt64 $type("SessionId");
  file @2 :UInt64 $type("FileId");
  parent @3 :UInt64 $type("FileId");
  # With `name`: the name of a file without a version. None: the file had a version, or see `renamed`.
  name @4 :Data $max("kNameBytesMax");
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  base @8 :UInt64 $type("Version");  # the version that the session started from; 0: none
  copies @9 :UInt32;                 # as in OpenSession
  part @10 :UInt32;
  last @11 :Bool $initial("true");
  stored @12 :List(Chunk) $max("kMapPageSlicesMax");      # chunks that this session has stored
  held @13 :List(Place.Wanted) $max("kPlaceBatchMax");    # chunks of the pool that it refers to
  truncated @14 :Bool;       # its next commit starts from an empty file
  opened @15 :UInt64;        # as in the reply to OpenSession
  waitsForCopies @16 :Bool;  # as in OpenSession
  renamed @17 :Bool;
  # The client renamed a file without a version. No parent: the file lost its name. The first part carries
  # this member and all following members. They override earlier messages of other clients.
  changed @18 :Bool;  # the client changed attributes of such a file: mode, uid, gid and the members below
  atimeNs @19 :Int64;
  mtimeNs @20 :Int64;
  xattrs @21 :List(Xattr) $max("kListItemsMax");
  struct Reply {
    committed @0 :Bool;
    # The stored content is already the newest version: its commit was done, and the answer was lost.
    attributes @1 :Attributes;
  }
}

struct CloseSession $title("close") $kind(ofSession) $route(clientToManager) {
  # Ends a session; uncommitted content is dropped.
  session @0 :UInt64 $type("SessionId");
  aborted @1 :Bool;  # list the uncommitted part under `stdchk ls --aborted`
  abortedBytes @2 :UInt64;
  writesInFlight @3 :Bool;  # the client could not stop its writes: the grants need a fence
  struct Reply {}
}

# ---- reading -----------------------------------------------------------------------------------

struct GetMap $title("get map") $kind(asks) $route(clientToManager) {
  # Asks for a page of a version's chunk map. From the first page on the version is pinned for the client:
  # its chunks stay until Unpin, GoodbyeClient, or the end of the client's lease.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  version @2 :UInt64 $type("Version");  # 0: the newest
  firstSlice @3 :UInt64;
  struct Reply {
    attributes @0 :Attributes;  # as of that version
    sliceCount @1 :UInt64;
    page @2 :ChunkMap;
    drainedPath @3 :Data $max("kPathBytesMax");  # relative to the drain directory; empty: not drained
    shared @4 :Bool;  # several hosts read the version: FindNear knows better places for its chunks
  }
}

struct FindNear $title("find near") $kind(asks) $route(clientToManager) {
  # Asks for a copy of a chunk on the client's host, of a version that several hosts read. The manager has a
  # benefactor there make a temporary copy, and answers when the copy is complete (docs/decisions/0083). The
  # copy may go at any moment: only the chunk's checksum proves what was read.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  version @2 :UInt64 $type("Version");  # pinned by the client
  offset @3 :UInt64;                    # file offset of a slice of the chunk
  struct Reply {
    benefactor @0 :UInt64 $type("BenefactorId");  # 0: read the copies in the chunk map
    offset @1 :UInt64;                            # of the extent's header in the arena
    alone @2 :Bool;  # few hosts read the file: end such requests
  }
}

struct GetStripe $title("get stripe") $kind(asks) $route(clientToManager) {
  # Asks for the readable other blocks of a chunk's stripe, for a client that cannot read the chunk itself.
  # As many blocks as the stripe has data blocks rebuild the chunk. Blocks may move or go at any moment:
  # only the chunk's own checksum proves that a rebuilt chunk is right.
  client @0 :UInt64 $type("ClientId");
  at @1 :Extent;  # a copy of the chunk; `name` and `length` are the chunk's
  name :group $type("stdchk::ChunkName") $Say.byHand {
    word0 @2 :UInt64;
    word1 @3 :UInt64;
    word2 @4 :UInt64;
    word3 @5 :UInt64;
  }
  length @6 :UInt32;
  struct Block {
    number @0 :UInt32;  # in the stripe: data from 0 on, then parity
    length @1 :UInt32;
    at @2 :Extent;
  }
  struct Reply {
    data @0 :UInt32;  # 0: the chunk is in no stripe
    parity @1 :UInt32;
    number @2 :UInt32;  # of the chunk itself
    blocks @3 :List(Block) $max("kStripeMembersMax");  # data first
  }
}

struct Unpin $title("unpin") $kind(ofClient) $route(clientToManager) {
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  version @2 :UInt64 $type("Version");
  struct Reply {}
}

struct ReportWrongCopy $title("report wrong copy") $kind(instructs) $route(clientToManager) {
  # A copy of a chunk of that version failed its checksum in a read. The manager has it checked.
  client @0 :UInt64 $type("ClientId");
  file @1 :UInt64 $type("FileId");
  version @2 :UInt64 $type("Version");
  at @3 :Extent;
  struct Reply {}
}

# ---- drain and administration ------------------------------------------------------------------

struct DrainNow $title("drain") $kind(instructs) $route(clientToManager) {
  # Moves the files below one directory to the head of the drain's queue.
  below @0 :UInt64 $type("FileId");  # kRootFile: all files
  struct Reply {
    pendingFiles @0 :UInt64;
    pendingBytes @1 :UInt64;
    failedFiles @2 :UInt64;
  }
}

struct ListAborted $title("list aborted") $kind(asks) $route(clientToManager) {
  struct Entry {
    path @0 :Data $max("kPathBytesMax");
    bytes @1 :UInt64;
    whenNs @2 :Int64;
    hostName @3 :Text $max("kNameBytesMax");
  }
  struct Reply {
    entries @0 :List(Entry) $max("kListItemsMax");
  }
}

struct GetDebt $title("get debt") $kind(asks) $route(clientToManager) {
  # Asks for the copies that a version still lacks.
  file @0 :UInt64 $type("FileId");
  version @1 :UInt64 $type("Version");
  struct Reply {
    chunks @0 :UInt64;
    bytes @1 :UInt64;
    impossible @2 :Bool;  # the pool has fewer benefactors than wanted copies
  }
}

struct ConfirmDrained $title("confirm drained") $kind(instructs) $route(clientToManager) {
  # Has benefactors look up whether files are in the drain directory as they were drained. A file that is
  # not, and is in memory, becomes pending again and is drained anew.
  files @0 :List(UInt64) $items("FileId") $max("kDrainChecksMax");
  comparesEvicted @1 :Bool;
  # A benefactor compares files without bytes in memory, too, unless the manager knows their fingerprint.
  # Without this field, size, time and owner are enough for such files.
  struct Reply {
    undrained @0 :List(UInt32) $max("kDrainChecksMax");
    # Indexes of files that are not drained, or were removed from the pool.
    missing @1 :List(UInt32) $max("kDrainChecksMax");
    # Indexes of the other files that somebody has removed or changed in the drain directory.
  }
}

struct CheckMetadata $title("check") $kind(asks) $route(clientToManager) {
  # Walks all metadata, and recomputes every count.
  struct Reply {
    broken @0 :List(Text) $max("kListItemsMax") $Say.itemMax("kAddressBytesMax");
    # A sentence for each broken rule, up to the limit.
    brokenCount @1 :UInt64;
    files @2 :UInt64;
    chunks @3 :UInt64;
    references @4 :UInt64;
  }
}

struct CollectGarbage $title("gc") $kind(instructs) $route(clientToManager) {
  # Finds space that nothing uses and nobody may write to, and gives it back. Begins a round, in which
  # benefactors report their extents and forget the unreferenced ones.
  execute @0 :Bool;  # false: only the plan
  round @1 :UInt64;  # not 0: begins nothing, and asks for the result of that round
  struct Range {
    benefactor @0 :UInt64 $type("BenefactorId");
    offset @1 :UInt64;
    length @2 :UInt64;
  }
  struct Arena {
    # The extents that one benefactor has reported.
    benefactor @0 :UInt64 $type("BenefactorId");
    whole @1 :Bool;               # false: a part of the arena was not looked at
    garbageExtents @2 :UInt64;    # nothing refers to them
    garbageBytes @3 :UInt64;
    forgottenExtents @4 :UInt64;  # garbage whose headers are cleared
    usedExtents @5 :UInt64;       # in the space of chunks
    grantedExtents @6 :UInt64;    # in the grants of open sessions
    waitingExtents @7 :UInt64;    # in space that waits for a client's fence or a durable journal
    copyingExtents @8 :UInt64;    # in the target space of running copies
    missingExtents @9 :UInt64;    # places of chunks without a header
  }
  struct Reply {
    leaked @0 :List(Range) $max("kListItemsMax");  # the first ones only
    leakedBytes @1 :UInt64;
    waitingBytes @2 :UInt64;  # kept until a client is fenced
    grantedBytes @3 :UInt64;  # of open sessions
    usedBytes @4 :UInt64;
    freeBytes @5 :UInt64;
    round @6 :UInt64;  # the round that was begun, or asked for
    ended @7 :Bool;    # that round has ended: `arenas` is its result, or a later round's
    arenas @8 :List(Arena) $max("kListItemsMax");  # the first ones only
  }
}

# ---- manager to benefactor ---------------------------------------------------------------------

struct FenceClient $title("fence client") $kind(toBenefactor) $route(managerToBenefactor) {
  # Rule M3: after the answer `fenced` no write of that client may change the arena.
  client @0 :UInt64 $type("ClientId");
  andOlder @1 :Bool;  # also all clients with smaller numbers, which are of earlier epochs
  struct Reply {
    fenced @0 :Bool;  # false: not yet, ask again
  }
}

const noExtent :UInt64 = 0xffffffffffffffff;
# A DrainPiece::extent_offset: the piece is not in memory any more. The benefactor copies it from the range
# [file_offset, file_offset + length) of DrainPieces::base_path, an earlier version, drained and evicted.

const unknownUid :UInt32 = 0xffffffff;
# No user has this number: chown(2) takes it for "no change".

struct DrainPiece {
  # A piece of a file, in the arena of the receiving benefactor.
  fileOffset @0 :UInt64;
  length @2 :UInt32;
  chunkOffset @3 :UInt32;
  extentOffset @1 :UInt64;  # or kNoExtent
  chunkLength @4 :UInt32;
  crc @5 :UInt32;  # of the whole chunk
  name :group $type("stdchk::ChunkName") $Say.byHand {
    word0 @6 :UInt64;
    word1 @7 :UInt64;
    word2 @8 :UInt64;
    word3 @9 :UInt64;
  }
}

struct DrainPieces $title("drain pieces") $kind(toBenefactor) $route(managerToBenefactor) {
  # Writes pieces into the temporary file of (file, number), makes them durable, reads them back and
  # compares; then answers. Each attempt to drain a file has a number of its own, so that a late request
  # changes only its own attempt.
  file @0 :UInt64 $type("FileId");
  number @1 :UInt64;
  basePath @3 :Data $max("kPathBytesMax");
  # Relative to the drain directory. For pieces with kNoExtent only.
  pieces @2 :List(DrainPiece) $max("kMapPageSlicesMax");
  baseUid @4 :UInt32 = .unknownUid;
  # The owner of the file at basePath in the pool. The benefactor refuses another user's file.
  struct Reply {
    corrupt @0 :List(UInt32) $max("kMapPageSlicesMax");
    # Indexes of pieces whose chunk fails its checksum.
  }
}

struct DrainFinish $title("drain finish") $kind(toBenefactor) $route(managerToBenefactor) {
  # Gives the temporary file its size, attributes and name (rule M6), and replaces an earlier file of that
  # name.
  file @0 :UInt64 $type("FileId");
  number @1 :UInt64;
  path @2 :Data $max("kPathBytesMax");  # relative to the drain directory
  sizeBytes @3 :UInt64;
  mode @4 :UInt32;
  uid @5 :UInt32;
  gid @6 :UInt32;
  mtimeNs @7 :Int64;
  struct Reply {}
}

struct FindDrained $title("find drained") $kind(toBenefactor) $route(managerToBenefactor) {
  # Looks whether files are in the drain directory as DrainFinish left them: regular files of the right
  # size. Where the storage keeps times of changes, the time must be equal, too.
  struct Wanted {
    path @0 :Data $max("kPathBytesMax");  # relative to the drain directory
    sizeBytes @1 :UInt64;
    mtimeNs @2 :Int64;
    uid @3 :UInt32 = .unknownUid;  # the owner in the pool
  }
  files @0 :List(Wanted) $max("kDrainChecksMax");
  struct Reply {
    missing @0 :List(UInt32) $max("kDrainChecksMax");  # indexes of files that are absent or different
  }
}

enum MirrorKind {
  invalid @0;
  rename @1;
  unlink @2;
  makeDirectory @3;
  removeDirectory @4;
  symlink @5;
  attributes @6;
  dropTemporary @7;
  # Removes the temporary file of (file, number). Without a file: removes all unused ones. These are files
  # of earlier epochs than that of `number`, and files of the mirror queue below its number. The epoch is in
  # the upper 24 bits, 0 for the mirror queue.
  setAside @8;
  # Gives the file a second name, that of the temporary file (file, number). Readers
  # still find it there after its path is removed or given to another file.
  link @9;     # gives the file at `path` one more name, `other_path`: a hard link
  special @10; # makes a FIFO or a socket: the type is in `mode`, as in stat(2)
}

struct MirrorChange $title("mirror change") $kind(toBenefactor) $route(managerToBenefactor) {
  # Repeats a change of the namespace in the drain directory. A change that was already made is no error.
  kind @0 :MirrorKind;
  path @1 :Data $max("kPathBytesMax");
  otherPath @2 :Data $max("kPathBytesMax");
  # Rename: the new path; symlink: the target. In a rename an empty path, here or above, is the temporary
  # file (file, number).
  file @3 :UInt64 $type("FileId");
  number @4 :UInt64;
  mode @5 :UInt32;
  uid @6 :UInt32;
  gid @7 :UInt32;
  mtimeNs @8 :Int64;
  uidBefore @9 :UInt32 = .unknownUid;
  # For kAttributes: the owner before the change. The drained file must belong to `uid` or to this
  # owner.
  struct Reply {}
}

struct MoveExtents $title("move extents") $kind(toBenefactor) $route(managerToBenefactor) {
  # Copies extents inside the arena (compaction). Each is checked against its crc.
  struct Move {
    fromOffset @0 :UInt64;
    toOffset @1 :UInt64;
    length @2 :UInt32;  # of the content; the header moves along
    crc @3 :UInt32;
  }
  moves @0 :List(Move) $max("kMapPageSlicesMax");
  grantsBefore @1 :UInt64 $type("GrantId");  # grants with smaller numbers open none of the targets any more
  struct Reply {
    failed @0 :List(UInt32) $max("kMapPageSlicesMax");  # indexes of moves
  }
}

struct CopyExtents $title("copy extents") $kind(toBenefactor) $route(managerToBenefactor) {
  # Reads extents of another benefactor into this arena and checks them here: the checksum at the target
  # proves a copy. Requests are answered in order. So an answer, also the last, proves that all earlier requests
  # have ended their writes to the arena.
  client @0 :UInt64 $type("ClientId");  # the number to attach under
  source @1 :BenefactorInfo;
  struct Copy {
    fromOffset @0 :UInt64;
    toOffset @1 :UInt64;
    length @2 :UInt32;  # of the content; the header is copied, too
    crc @3 :UInt32;
    name :group $type("stdchk::ChunkName") $Say.byHand {
      word0 @4 :UInt64;
      word1 @5 :UInt64;
      word2 @6 :UInt64;
      word3 @7 :UInt64;
    }
  }
  copies @2 :List(Copy) $max("kMapPageSlicesMax");
  grantsBefore @3 :UInt64 $type("GrantId");  # as in MoveExtents
  struct Reply {
    failed @0 :List(UInt32) $max("kMapPageSlicesMax");   # indexes of copies with an unreadable source
    corrupt @1 :List(UInt32) $max("kMapPageSlicesMax");  # indexes of copies with a wrong checksum
  }
}

struct BuildStripe $title("build stripe") $kind(toBenefactor) $route(managerToBenefactor) {
  # Makes blocks of a stripe from its other blocks, in this arena (core/chunk/erasure.h). It makes parity from
  # data, or lost blocks from the remaining blocks. Inputs are read by one-sided transfers and checked; an output is a whole
  # extent. Requests are answered in order. So an answer, also to a request without outputs, proves that all
  # earlier requests have ended their writes to the arena.
  struct Input {
    number @0 :UInt32;  # of the block in the stripe: data from 0 on, then parity
    source @1 :UInt32;  # index into `sources`
    offset @2 :UInt64;
    length @3 :UInt32;
    crc @4 :UInt32;
  }
  struct Output {
    number @0 :UInt32;
    toOffset @1 :UInt64;
    length @2 :UInt32;
    name :group $type("stdchk::ChunkName") $Say.byHand {
      word0 @3 :UInt64;
      word1 @4 :UInt64;
      word2 @5 :UInt64;
      word3 @6 :UInt64;
    }
  }
  client @0 :UInt64 $type("ClientId");  # the number to attach under
  data @1 :UInt32;
  parity @2 :UInt32;
  sources @3 :List(BenefactorInfo) $max("kStripeMembersMax");
  inputs @4 :List(Input) $max("kStripeMembersMax");    # `data` of them
  outputs @5 :List(Output) $max("kStripeMembersMax");  # none: the sender wants only the answer
  grantsBefore @6 :UInt64 $type("GrantId");            # as in MoveExtents
  struct Reply {
    failed @0 :List(UInt32) $max("kStripeMembersMax");   # indexes of unreadable inputs
    corrupt @1 :List(UInt32) $max("kStripeMembersMax");  # indexes of inputs with a wrong checksum
    crcs @2 :List(UInt32) $max("kStripeMembersMax");     # of the outputs; empty if an input was absent
  }
}

struct CheckExtents $title("check extents") $kind(toBenefactor) $route(managerToBenefactor) {
  # Looks whether these chunks are there, whole (scrub).
  struct Checked {
    offset @0 :UInt64;
    length @1 :UInt32;
    crc @2 :UInt32;
    name :group $type("stdchk::ChunkName") $Say.byHand {
      word0 @3 :UInt64;
      word1 @4 :UInt64;
      word2 @5 :UInt64;
      word3 @6 :UInt64;
    }
  }
  extents @0 :List(Checked) $max("kMapPageSlicesMax");
  struct Reply {
    corrupt @0 :List(UInt32) $max("kMapPageSlicesMax");  # indexes of extents
  }
}

struct FoundExtent {
  # A header of an extent, as a benefactor finds it in its arena.
  offset @0 :UInt64;
  length @1 :UInt32;     # of the content, as the header says
  headerCrc @2 :UInt32;  # CRC32C of the header's bytes, which tells this header from another one
}

struct ReportExtents $title("report extents") $kind(toBenefactor) $route(managerToBenefactor) {
  # Asks for the headers of extents in a part of the arena. They may be headers of chunks, unreferenced
  # headers, and bytes of a chunk's content that look like a header.
  begin @0 :UInt64;
  end @1 :UInt64;
  struct Reply {
    extents @0 :List(FoundExtent) $max("kListItemsMax");  # ascending
    end @1 :UInt64;
    # The reply covers [begin, end). With a full list this is less than the request's `end`.
  }
}

struct ForgetExtents $title("forget extents") $kind(toBenefactor) $route(managerToBenefactor) {
  # Clears these headers. The manager neither uses nor grants their space before the answer. Requests are answered
  # in order. So an answer, or a new link, proves that all earlier requests have ended their writes to the arena.
  extents @0 :List(FoundExtent) $max("kListItemsMax");  # none: the sender wants only the answer
  struct Reply {
    forgotten @0 :UInt32;  # how many headers the benefactor found and cleared
  }
}

struct KeepLog $title("keep log") $kind(toBenefactor) $route(managerToBenefactor) {
  # Bytes of the metadata log: the manager's journal, kept by benefactors so that a manager without its disk
  # can be rebuilt (rule M8). A log is a snapshot and the records after it, each behind its length (4 bytes,
  # the low one first). A log counts from the first request with a `sequence`; until then the log before it
  # counts.
  epoch @0 :UInt64 $type("Epoch");
  begins @1 :Bool;      # begins a new log, and drops an earlier one that never became whole
  offset @2 :UInt64;    # of `bytes` in the log
  sequence @3 :UInt64;  # of the newest record, which ends with `bytes`; 0: the record goes on
  bytes @4 :Data $Say.anyBytes $max("kLogPieceBytesMax");
  struct Reply {}
}

struct ReadLog $title("read log") $kind(toBenefactor) $route(managerToBenefactor) {
  # Asks for the log that counts, from `offset` on.
  offset @0 :UInt64;
  promise @1 :UInt64 $type("Epoch");
  # From now on the benefactor keeps nothing of an earlier epoch. None: asks for no promise.
  struct Reply {
    bytes @0 :Data $Say.anyBytes $max("kLogPieceBytesMax");
    more @1 :Bool;
  }
}

# ---- client to benefactor ----------------------------------------------------------------------

struct Attach $title("attach") $kind(toBenefactor) $route(readerToBenefactor) {
  # Opens each link to a benefactor. The reply has the key of the arena.
  secret @0 :Secret $Say.reserved;  # of earlier versions: now the link proves its ends
  client @1 :UInt64 $type("ClientId");
  benefactor @2 :UInt64 $type("BenefactorId");  # the benefactor that the client expects
  struct Reply {
    key @0 :UInt64;
    base @1 :UInt64;
    length @2 :UInt64;
  }
}

# ---- notices: manager to client, no reply ------------------------------------------------------

struct Invalidate {
  # Tells a client which of its cached names and attributes are out of date.
  struct Entry {
    directory @0 :UInt64 $type("FileId");
    name @1 :Data $max("kNameBytesMax");
  }
  entries @0 :List(Entry) $max("kListItemsMax");
  files @1 :List(UInt64) $items("FileId") $max("kListItemsMax");
  # Files with changed attributes or a new version.
  benefactorsChanged @2 :Bool;
  fenced @3 :List(UInt64) $items("SessionId") $max("kListItemsMax");  # sessions that the manager ended
  recalled @4 :List(UInt64) $items("FileId") $max("kListItemsMax");
  # Directories whose leases this client has to return: another client waits.
  shared @5 :List(UInt64) $items("FileId") $max("kListItemsMax");
  # Files that several hosts read: FindNear knows better places for their chunks.
}

# ---- containers --------------------------------------------------------------------------------

struct PrepareNode $title("prepare node") $kind(toNode) $route(coordinatorToNode) {
  # Gives a node to a job. The node makes the job's network. A request for another job is refused with kBusy.
  job @0 :Text $max("kNameBytesMax");
  network @1 :Data $Say.anyBytes $max("kXattrBytesMax");  # JSON, container/README.md describes it
  leaseNs @2 :UInt64;
  # Without any request of the coordinator in this time, the node ends all containers.
  struct Reply {
    hostName @0 :Text $max("kNameBytesMax");
    criu @1 :Text $max("kNameBytesMax");  # the version of the program that saves processes
  }
}

struct BoxState {
  # A container of a job on the node that answers.
  box @0 :UInt32;
  running @1 :Bool;
  exitStatus @2 :UInt32;  # exit status of process 1 after its end
  request @3 :UInt64;     # number of the newest checkpoint that a program has asked for; 0: none
  ended @4 :List(UInt64) $max("kListItemsMax");
  # Ended commands: each has its number in the upper 32 bits, and its exit status in the lower 32 bits.
  asks @5 :List(Text) $max("kDirectoryPageMax") $Say.itemMax("kPathBytesMax");
  # Commands for other containers that the remote-shell agent has left: NAME HOST COMMAND. New ones only.
}

struct AskNode $title("ask node") $kind(toNode) $route(coordinatorToNode) {
  # Asks for the state of the job's containers, and renews the lease.
  job @0 :Text $max("kNameBytesMax");
  outputFrom @1 :UInt64;  # where the wanted part of container 0's standard output begins
  errorsFrom @2 :UInt64;  # the same of its standard error
  struct Reply {
    boxes @0 :List(BoxState) $max("kDirectoryPageMax");
    output @1 :Data $Say.anyBytes $max("kXattrBytesMax");
    errors @2 :Data $Say.anyBytes $max("kXattrBytesMax");
  }
}

enum NodeStep {
  # A step of a node with its containers. container/README.md has the order.
  invalid @0;
  start @1;
  stop @2;
  settle @3;
  lock @4;
  save @5;
  open @6;
  resume @7;
  store @8;
  discard @9;
  load @10;
  remove @11;
}

struct BoxOrder {
  box @0 :UInt32;
  description @1 :Data $Say.anyBytes $max("kXattrBytesMax");  # JSON; of `start` and `load` only
}

struct StepNode $title("step node") $kind(toNode) $route(coordinatorToNode) {
  # Takes a step with the containers `boxes`. Without `boxes`: with all containers of the node.
  job @0 :Text $max("kNameBytesMax");
  step @1 :NodeStep;
  set @2 :UInt64;  # the timestep Tj of the checkpoint that the step belongs to
  boxes @3 :List(BoxOrder) $max("kDirectoryPageMax");
  struct Result {
    box @0 :UInt32;
    bytes @1 :UInt64;
    durationNs @2 :UInt64;
  }
  struct Reply {
    results @0 :List(Result) $max("kDirectoryPageMax");
  }
}

enum Tell {
  # The kind of a message to a container (TellBox).
  invalid @0;
  command @1;    # run `text`, words with the byte 0 behind each, as command `number`
  askTaken @2;   # the agent's command of name `text` was given to another container
  askEnded @3;   # that command has ended with the exit status `number`
  goesOn @4;     # checkpoint `number`, which a program has asked for, is taken
  restarted @5;  # the job was restarted from a checkpoint
  notTaken @6;   # checkpoint `number` was given up
}

struct TellBox $title("tell box") $kind(toNode) $route(coordinatorToNode) {
  job @0 :Text $max("kNameBytesMax");
  box @1 :UInt32;
  tell @2 :Tell;
  number @3 :UInt64;
  text @4 :Data $Say.anyBytes $max("kXattrBytesMax");
  struct Reply {}
}

# ---- the envelope ------------------------------------------------------------------------------

struct Envelope $Say.byHand {
  # A whole message on a link.
  union {
    request @0 :Request;  # asks the peer for something; answered by one Reply
    reply @1 :Reply;      # answers a request
    notice @2 :Notice;    # not answered
  }
}

struct Request $Say.envelope {
  # All requests, in the order of the wire.
  callId @0 :UInt64;      # chosen by the sender; the reply carries it back
  deadlineMs @1 :UInt32;  # how long the sender waits from now on
  sender @2 :UInt64;      # client or benefactor number; with call_id it identifies a repeated request
  union {
    registerClient @3 :RegisterClient;
    clientHeartbeat @4 :ClientHeartbeat;
    goodbyeClient @5 :GoodbyeClient;
    listBenefactors @6 :ListBenefactors;
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
    statPool @20 :StatPool;
    openSession @21 :OpenSession;
    place @22 :Place;
    commit @23 :Commit;
    closeSession @24 :CloseSession;
    getMap @25 :GetMap;
    unpin @26 :Unpin;
    drainNow @27 :DrainNow;
    listAborted @28 :ListAborted;
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
    checkMetadata @42 :CheckMetadata;
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
    prepareNode @55 :PrepareNode;
    askNode @56 :AskNode;
    stepNode @57 :StepNode;
    tellBox @58 :TellBox;
    makeNode @59 :MakeNode;
    makeLink @60 :MakeLink;
    setLock @61 :SetLock;
    cancelLock @62 :CancelLock;
    getLock @63 :GetLock;
    leaseDirectory @64 :LeaseDirectory;
    applyNames @65 :ApplyNames;
    returnLease @66 :ReturnLease;
    findNear @67 :FindNear;
  }
}

struct Reply $Say.envelope {
  # All replies, in the order of the requests. A reply carries the call_id of its request.
  callId @0 :UInt64;
  code @1 :UInt16 $type("Code");  # Code{}: success, and `body` holds; otherwise core/base/error_codes.h
  osErrno @2 :Int32;              # errno of the system call that failed at the server; 0: none
  retryAfterMs @3 :UInt32;        # back-off that the server asks for
  detail @4 :Text $max("kPathBytesMax");  # for people; may be empty
  union {
    none @5 :Void;  # with a code other than 0
    registerClient @6 :RegisterClient.Reply;
    clientHeartbeat @7 :ClientHeartbeat.Reply;
    goodbyeClient @8 :GoodbyeClient.Reply;
    listBenefactors @9 :ListBenefactors.Reply;
    registerBenefactor @10 :RegisterBenefactor.Reply;
    benefactorHeartbeat @11 :BenefactorHeartbeat.Reply;
    lookup @12 :Lookup.Reply;
    getAttributes @13 :GetAttributes.Reply;
    readDirectory @14 :ReadDirectory.Reply;
    setAttributes @15 :SetAttributes.Reply;
    makeDirectory @16 :MakeDirectory.Reply;
    makeSymlink @17 :MakeSymlink.Reply;
    readSymlink @18 :ReadSymlink.Reply;
    remove @19 :Remove.Reply;
    rename @20 :Rename.Reply;
    setXattr @21 :SetXattr.Reply;
    getXattrs @22 :GetXattrs.Reply;
    statPool @23 :StatPool.Reply;
    openSession @24 :OpenSession.Reply;
    place @25 :Place.Reply;
    commit @26 :Commit.Reply;
    closeSession @27 :CloseSession.Reply;
    getMap @28 :GetMap.Reply;
    unpin @29 :Unpin.Reply;
    drainNow @30 :DrainNow.Reply;
    listAborted @31 :ListAborted.Reply;
    fenceClient @32 :FenceClient.Reply;
    drainPieces @33 :DrainPieces.Reply;
    drainFinish @34 :DrainFinish.Reply;
    mirrorChange @35 :MirrorChange.Reply;
    moveExtents @36 :MoveExtents.Reply;
    attach @37 :Attach.Reply;
    getPolicy @38 :GetPolicy.Reply;
    setPolicy @39 :SetPolicy.Reply;
    listSets @40 :ListSets.Reply;
    copyExtents @41 :CopyExtents.Reply;
    checkExtents @42 :CheckExtents.Reply;
    getDebt @43 :GetDebt.Reply;
    scrub @44 :Scrub.Reply;
    checkMetadata @45 :CheckMetadata.Reply;
    collectGarbage @46 :CollectGarbage.Reply;
    buildStripe @47 :BuildStripe.Reply;
    getStripe @48 :GetStripe.Reply;
    keepLog @49 :KeepLog.Reply;
    readLog @50 :ReadLog.Reply;
    reportWrongCopy @51 :ReportWrongCopy.Reply;
    followManager @52 :FollowManager.Reply;
    reportExtents @53 :ReportExtents.Reply;
    forgetExtents @54 :ForgetExtents.Reply;
    resumeSession @55 :ResumeSession.Reply;
    confirmDrained @56 :ConfirmDrained.Reply;
    findDrained @57 :FindDrained.Reply;
    prepareNode @58 :PrepareNode.Reply;
    askNode @59 :AskNode.Reply;
    stepNode @60 :StepNode.Reply;
    tellBox @61 :TellBox.Reply;
    makeNode @62 :MakeNode.Reply;
    makeLink @63 :MakeLink.Reply;
    setLock @64 :SetLock.Reply;
    cancelLock @65 :CancelLock.Reply;
    getLock @66 :GetLock.Reply;
    leaseDirectory @67 :LeaseDirectory.Reply;
    applyNames @68 :ApplyNames.Reply;
    returnLease @69 :ReturnLease.Reply;
    findNear @70 :FindNear.Reply;
  }
}

struct Notice $Say.envelope {
  # A one-way message, manager to client.
  union {
    invalidate @0 :Invalidate;
    none @1 :Void;  # not sent: Cap'n Proto wants two members of a union
  }
}
