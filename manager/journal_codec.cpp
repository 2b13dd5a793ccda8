#include "manager/journal_codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <cstring>

#include "core/limits.h"
#include "core/naming.h"
#include "core/one_of_instance.h"
#include "manager/journal.capnp.h"

namespace stdchk::manager {
namespace {

capnp::Data::Reader data(const std::string& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
std::string text(capnp::Data::Reader from) {
  return {reinterpret_cast<const char*>(from.begin()), from.size()};
}
/// Reports a value that no valid record contains: the record is corrupt.
[[noreturn]] void corrupt() { kj::throwFatalException(KJ_EXCEPTION(FAILED, "not a valid record")); }
unsigned size_of(std::size_t count) { return static_cast<unsigned>(count); }

capnp::Data::Reader data(const ChunkName& name) {
  return {reinterpret_cast<const kj::byte*>(name.bytes.data()), name.bytes.size()};
}
ChunkName read_name(capnp::Data::Reader from) {
  ChunkName to;
  if (from.size() == 0) return to;
  if (from.size() != to.bytes.size()) corrupt();
  std::memcpy(to.bytes.data(), from.begin(), to.bytes.size());
  return to;
}

void write(wire::Extent::Builder to, const Extent& from) {
  to.setBenefactor(from.benefactor.value);
  to.setOffset(from.offset);
}
/// Accepts only offsets that the chunk table can hold.
std::uint64_t read_offset(std::uint64_t from) {
  if (from / limits::kExtentAlignment >= (std::uint64_t{1} << 40)) corrupt();
  return from;
}
/// Rejects a number of a commit or change that counting cannot reach:
/// counting on from it would wrap.
std::uint64_t read_sequence(std::uint64_t from) {
  if (from >> 62 != 0) corrupt();
  return from;
}
Extent read(wire::Extent::Reader from) {
  const Extent to{BenefactorId{from.getBenefactor()}, read_offset(from.getOffset())};
  if (!to.benefactor || to.benefactor.value >= (1U << 24)) corrupt();
  return to;
}

template <class Builder, class Command>
void write_caller(Builder to, const Command& from) {
  if (!from.caller.client) return;
  auto out = to.initCaller();
  out.setClient(from.caller.client.value);
  out.setCall(from.caller.call);
}
template <class Reader>
Caller read_caller(Reader from) {
  return {{from.getCaller().getClient()}, from.getCaller().getCall()};
}

void write(capnp::List<wire::Chunk>::Builder to, const std::vector<Chunk>& from) {
  for (unsigned i = 0; i < to.size(); ++i) {
    const Chunk& chunk = from[i];
    if (chunk.name.is_named()) to[i].setName(data(chunk.name));
    to[i].setLength(chunk.length);
    to[i].setCrc(chunk.crc);
    auto copies = to[i].initCopies(size_of(chunk.copies.size()));
    for (unsigned k = 0; k < copies.size(); ++k) write(copies[k], chunk.copies[k]);
  }
}

std::vector<Chunk> read(capnp::List<wire::Chunk>::Reader from) {
  std::vector<Chunk> to;
  for (const auto chunk : from) {
    Chunk& made = to.emplace_back();
    made.name = read_name(chunk.getName());
    made.length = chunk.getLength();
    made.crc = chunk.getCrc();
    for (const auto copy : chunk.getCopies()) made.copies.push_back(read(copy));
  }
  return to;
}

void write(wire::ChunkMap::Builder to, const ChunkMap& from) {
  write(to.initChunks(size_of(from.chunks.size())), from.chunks);
  auto slices = to.initSlices(size_of(from.slices.size()));
  for (unsigned i = 0; i < slices.size(); ++i) {
    const Slice& slice = from.slices[i];
    slices[i].setFileOffset(slice.file_offset);
    slices[i].setLength(slice.length);
    slices[i].setChunkOffset(slice.chunk_offset);
    slices[i].setChunk(slice.chunk);
  }
}

ChunkMap read(wire::ChunkMap::Reader from) {
  ChunkMap to;
  to.chunks = read(from.getChunks());
  for (const auto slice : from.getSlices()) {
    to.slices.push_back(
        {slice.getFileOffset(), slice.getLength(), slice.getChunkOffset(), slice.getChunk()});
  }
  return to;
}

template <class List>
void write(List to, const Xattrs& from) {
  for (unsigned i = 0; i < to.size(); ++i) {
    to[i].setName(data(from[i].first));
    to[i].setValue(data(from[i].second));
  }
}

Xattrs read(capnp::List<wire::Xattr>::Reader from) {
  Xattrs to;
  for (const auto one : from) to.emplace_back(text(one.getName()), text(one.getValue()));
  return to;
}

template <class List>
void write(List to, const Policy& from) {
  for (unsigned i = 0; i < to.size(); ++i) {
    to[i].setKey(static_cast<std::uint16_t>(from.settings[i].key));
    to[i].setValue(from.settings[i].value);
  }
}

Policy read(capnp::List<wire::PolicySetting>::Reader from) {
  Policy to;
  for (const auto one : from) {
    to.settings.push_back({static_cast<PolicyKey>(one.getKey()), one.getValue()});
  }
  return to;
}

NamingState read_naming(std::uint8_t from) {
  if (from > static_cast<std::uint8_t>(NamingState::kDidNotPay)) corrupt();
  return static_cast<NamingState>(from);
}

// ---- one pair for each command ----------------------------------------------------------------

void write(wire::Command::Builder to, const BeginEpoch& from) {
  to.setBeginEpoch(from.epoch.value);
}

void write(wire::Command::Builder to, const AddBenefactor& from) {
  auto out = to.initAddBenefactor();
  out.setId(from.id.value);
  out.setLifeHigh(from.life_high);
  out.setLifeLow(from.life_low);
  out.setArenaBytes(from.arena_bytes);
  out.setHostName(data(from.host_name));
}
AddBenefactor read(wire::AddBenefactor::Reader from) {
  return {{from.getId()},
          from.getLifeHigh(),
          from.getLifeLow(),
          from.getArenaBytes(),
          text(from.getHostName())};
}

void write(wire::Command::Builder to, const CommitVersion& from) {
  auto out = to.initCommitVersion();
  out.setFile(from.file.value);
  if (from.create) {
    auto create = out.initCreate();
    create.setParent(from.create->parent.value);
    create.setName(data(from.create->name));
    create.setMode(from.create->mode);
    create.setUid(from.create->uid);
    create.setGid(from.create->gid);
    create.setAtimeNs(from.create->atime_ns);
    write(create.initXattrs(size_of(from.create->xattrs.size())), from.create->xattrs);
  }
  out.setCutBefore(from.cut_before);
  out.setCutBytes(from.cut_bytes);
  out.setSetSize(from.set_size);
  out.setSizeBytes(from.size_bytes);
  out.setMtimeNs(from.mtime_ns);
  out.setNowNs(from.now_ns);
  write(out.initWritten(), from.written);
  out.setMirror(from.mirror);
  out.setCopies(from.copies);
  out.setOpened(from.opened);
  out.setReplacing(from.replacing);
  out.setNaming(static_cast<std::uint8_t>(from.naming));
  out.setSameAs(from.same_as);
}
CommitVersion read(wire::CommitVersion::Reader from) {
  CommitVersion to;
  to.file.value = from.getFile();
  if (from.hasCreate()) {
    const auto create = from.getCreate();
    to.create = NewName{{create.getParent()},    text(create.getName()), create.getMode(),
                        create.getUid(),         create.getGid(),        create.getAtimeNs(),
                        read(create.getXattrs())};
  }
  to.cut_before = from.getCutBefore();
  to.cut_bytes = from.getCutBytes();
  to.set_size = from.getSetSize();
  to.size_bytes = from.getSizeBytes();
  to.mtime_ns = from.getMtimeNs();
  to.now_ns = from.getNowNs();
  to.written = read(from.getWritten());
  to.mirror = from.getMirror();
  to.copies = from.getCopies();
  to.opened = from.getOpened();
  to.replacing = from.getReplacing();
  to.naming = read_naming(from.getNaming());
  to.same_as = from.getSameAs();
  return to;
}

void write(wire::Command::Builder to, const AddDirectory& from) {
  auto out = to.initAddDirectory();
  out.setId(from.id.value);
  out.setParent(from.parent.value);
  out.setName(data(from.name));
  out.setMode(from.mode);
  out.setUid(from.uid);
  out.setGid(from.gid);
  out.setNowNs(from.now_ns);
  out.setMirror(from.mirror);
  write_caller(out, from);
}
AddDirectory read_directory(wire::AddName::Reader from) {
  return {{from.getId()}, {from.getParent()}, text(from.getName()), from.getMode(),   from.getUid(),
          from.getGid(),  from.getNowNs(),    from.getMirror(),     read_caller(from)};
}

void write(wire::Command::Builder to, const AddSymlink& from) {
  auto out = to.initAddSymlink();
  out.setId(from.id.value);
  out.setParent(from.parent.value);
  out.setName(data(from.name));
  out.setTarget(data(from.target));
  out.setUid(from.uid);
  out.setGid(from.gid);
  out.setNowNs(from.now_ns);
  out.setMirror(from.mirror);
  write_caller(out, from);
}
AddSymlink read_symlink(wire::AddName::Reader from) {
  return {{from.getId()},         {from.getParent()}, text(from.getName()),
          text(from.getTarget()), from.getUid(),      from.getGid(),
          from.getNowNs(),        from.getMirror(),   read_caller(from)};
}

void write(wire::Command::Builder to, const RemoveName& from) {
  auto out = to.initRemoveName();
  out.setParent(from.parent.value);
  out.setName(data(from.name));
  out.setDirectory(from.directory);
  out.setNowNs(from.now_ns);
  out.setMirror(from.mirror);
  write_caller(out, from);
}
RemoveName read(wire::RemoveName::Reader from) {
  return {{from.getParent()}, text(from.getName()), from.getDirectory(),
          from.getNowNs(),    from.getMirror(),     read_caller(from)};
}

void write(wire::Command::Builder to, const RenameName& from) {
  auto out = to.initRenameName();
  out.setFromParent(from.from_parent.value);
  out.setFromName(data(from.from_name));
  out.setToParent(from.to_parent.value);
  out.setToName(data(from.to_name));
  out.setNoReplace(from.no_replace);
  out.setExchange(from.exchange);
  out.setNowNs(from.now_ns);
  out.setMirror(from.mirror);
  write_caller(out, from);
}
RenameName read(wire::RenameName::Reader from) {
  return {{from.getFromParent()}, text(from.getFromName()), {from.getToParent()},
          text(from.getToName()), from.getNoReplace(),      from.getExchange(),
          from.getNowNs(),        from.getMirror(),         read_caller(from)};
}

void write(wire::Command::Builder to, const ChangeAttributes& from) {
  auto out = to.initChangeAttributes();
  out.setFile(from.change.file.value);
  out.setMask(from.change.mask);
  out.setMode(from.change.mode);
  out.setUid(from.change.uid);
  out.setGid(from.change.gid);
  out.setAtimeNs(from.change.atime_ns);
  out.setMtimeNs(from.change.mtime_ns);
  out.setNowNs(from.now_ns);
  out.setMirror(from.mirror);
  write_caller(out, from);
}
ChangeAttributes read(wire::ChangeAttributes::Reader from) {
  ChangeAttributes to;
  to.change = {{},
               {from.getFile()},
               from.getMask(),
               from.getMode(),
               from.getUid(),
               from.getGid(),
               from.getAtimeNs(),
               from.getMtimeNs()};
  to.now_ns = from.getNowNs();
  to.mirror = from.getMirror();
  to.caller = read_caller(from);
  return to;
}

void write(wire::Command::Builder to, const ChangeXattr& from) {
  auto out = to.initChangeXattr();
  out.setFile(from.change.file.value);
  out.setName(data(from.change.name));
  out.setValue(data(from.change.value));
  out.setMode(static_cast<std::uint8_t>(from.change.mode));
  out.setRemove(from.change.remove);
  out.setNowNs(from.now_ns);
  write_caller(out, from);
}
ChangeXattr read(wire::ChangeXattr::Reader from) {
  if (from.getMode() > static_cast<std::uint8_t>(msg::XattrMode::kReplace)) corrupt();
  ChangeXattr to;
  to.change = {{},
               {from.getFile()},
               text(from.getName()),
               text(from.getValue()),
               static_cast<msg::XattrMode>(from.getMode()),
               from.getRemove()};
  to.now_ns = from.getNowNs();
  to.caller = read_caller(from);
  return to;
}

void write(wire::Command::Builder to, const SetPolicy& from) {
  auto out = to.initSetPolicy();
  out.setDirectory(from.directory.value);
  write(out.initChanges(size_of(from.changes.settings.size())), from.changes);
  out.setNowNs(from.now_ns);
  write_caller(out, from);
}
SetPolicy read(wire::SetPolicy::Reader from) {
  return {{from.getDirectory()}, read(from.getChanges()), from.getNowNs(), read_caller(from)};
}

void write(wire::Command::Builder to, const SetLatest& from) {
  auto out = to.initSetLatest();
  out.setDirectory(from.directory.value);
  out.setId(from.id.value);
  out.setTarget(data(from.target));
  out.setDrainedTarget(data(from.drained.name));
  out.setDrainedSequence(from.drained.sequence);
  out.setNowNs(from.now_ns);
}
SetLatest read(wire::SetLatest::Reader from) {
  return {{from.getDirectory()},
          {from.getId()},
          text(from.getTarget()),
          {text(from.getDrainedTarget()), read_sequence(from.getDrainedSequence())},
          from.getNowNs()};
}

void write(wire::Command::Builder to, const DrainStarted& from) {
  to.setDrainStarted(from.file.value);
}

void write(wire::Command::Builder to, const Drained& from) {
  auto out = to.initDrained();
  out.setFile(from.file.value);
  out.setVersion(from.version);
}

void write(wire::Command::Builder to, const DrainLost& from) {
  auto out = to.initDrainLost();
  out.setFile(from.file.value);
  out.setVersion(from.version);
}

void write(wire::Command::Builder to, const Evict& from) {
  auto out = to.initEvict();
  out.setFile(from.file.value);
  out.setVersion(from.version);
  auto slices = out.initSlices(size_of(from.slices.size()));
  for (unsigned i = 0; i < slices.size(); ++i) slices.set(i, from.slices[i]);
}
Evict read(wire::FileVersion::Reader from) {
  Evict to{{from.getFile()}, from.getVersion(), {}};
  for (const std::uint32_t slice : from.getSlices()) to.slices.push_back(slice);
  return to;
}

void write(wire::Command::Builder to, const Mirrored& from) { to.setMirrored(from.sequence); }

void write(wire::Command::Builder to, const MoveChunks& from) {
  auto out = to.initMoveChunks();
  out.setBenefactor(from.benefactor.value);
  auto moves = out.initMoves(size_of(from.moves.size()));
  for (unsigned i = 0; i < moves.size(); ++i) {
    moves[i].setFromOffset(from.moves[i].from_offset);
    moves[i].setToOffset(from.moves[i].to_offset);
  }
}
MoveChunks read(wire::MoveChunks::Reader from) {
  MoveChunks to{{from.getBenefactor()}, {}};
  for (const auto move : from.getMoves()) {
    to.moves.push_back({read_offset(move.getFromOffset()), read_offset(move.getToOffset())});
  }
  return to;
}

void write(wire::Command::Builder to, const RestoreFile& from) {
  auto out = to.initRestoreFile();
  out.setId(from.attributes.id.value);
  out.setType(static_cast<std::uint8_t>(from.attributes.type));
  out.setMode(from.attributes.mode);
  out.setUid(from.attributes.uid);
  out.setGid(from.attributes.gid);
  out.setSizeBytes(from.attributes.size_bytes);
  out.setVersion(from.attributes.version);
  out.setAtimeNs(from.attributes.atime_ns);
  out.setMtimeNs(from.attributes.mtime_ns);
  out.setCtimeNs(from.attributes.ctime_ns);
  out.setParent(from.parent.value);
  out.setName(data(from.name));
  out.setTarget(data(from.target));
  write(out.initXattrs(size_of(from.xattrs.size())), from.xattrs);
  write(out.initMap(), from.map);
  out.setDrained(from.drained);
  out.setEvicted(from.evicted);
  out.setInDrain(from.in_drain);
  out.setStaleInDrain(from.stale_in_drain);
  out.setSequence(from.sequence);
  write(out.initPolicy(size_of(from.policy.settings.size())), from.policy);
  out.setCopies(from.copies);
  out.setOpened(from.opened);
  out.setWritten(from.written);
  out.setNaming(static_cast<std::uint8_t>(from.attributes.naming));
  auto sets = out.initDrainedSets(size_of(from.drained_sets.size()));
  for (std::uint32_t i = 0; i < sets.size(); ++i) {
    sets[i].setName(data(from.drained_sets[i].name));
    sets[i].setSequence(from.drained_sets[i].sequence);
  }
}
RestoreFile read(wire::RestoreFile::Reader from) {
  if (from.getType() < static_cast<std::uint8_t>(FileType::kRegular) ||
      from.getType() > static_cast<std::uint8_t>(FileType::kSymlink)) {
    corrupt();
  }
  RestoreFile to;
  to.attributes.id.value = from.getId();
  to.attributes.type = static_cast<FileType>(from.getType());
  to.attributes.mode = from.getMode();
  to.attributes.uid = from.getUid();
  to.attributes.gid = from.getGid();
  to.attributes.size_bytes = from.getSizeBytes();
  to.attributes.version = from.getVersion();
  to.attributes.atime_ns = from.getAtimeNs();
  to.attributes.mtime_ns = from.getMtimeNs();
  to.attributes.ctime_ns = from.getCtimeNs();
  to.parent.value = from.getParent();
  to.name = text(from.getName());
  to.target = text(from.getTarget());
  to.xattrs = read(from.getXattrs());
  to.map = read(from.getMap());
  to.drained = from.getDrained();
  to.evicted = from.getEvicted();
  to.in_drain = from.getInDrain();
  to.stale_in_drain = from.getStaleInDrain();
  to.sequence = read_sequence(from.getSequence());
  to.policy = read(from.getPolicy());
  to.copies = from.getCopies();
  to.opened = from.getOpened();
  to.written = from.getWritten();
  to.attributes.naming = read_naming(from.getNaming());
  for (const auto set : from.getDrainedSets()) {
    to.drained_sets.push_back({text(set.getName()), read_sequence(set.getSequence())});
  }
  return to;
}

void write(wire::Command::Builder to, const RestoreCounters& from) {
  auto out = to.initRestoreCounters();
  out.setEpoch(from.epoch.value);
  out.setSequence(from.sequence);
  out.setMirrorSequence(from.mirror_sequence);
  out.setImages(from.history.images);
  out.setWrittenBytes(from.history.written_bytes);
  out.setStoredBytes(from.history.stored_bytes);
  out.setDrainedImages(from.history.drained_images);
  out.setDrainedBytes(from.history.drained_bytes);
  auto epochs = out.initEpochs(static_cast<unsigned>(from.epochs.size()));
  for (unsigned i = 0; i < epochs.size(); ++i) {
    epochs[i].setEpoch(from.epochs[i].epoch.value);
    epochs[i].setRecords(from.epochs[i].records);
  }
}

void write(wire::Command::Builder to, const RestoreMirror& from) {
  auto out = to.initRestoreMirror();
  out.setSequence(from.sequence);
  out.setKind(static_cast<std::uint8_t>(from.change.kind));
  out.setPath(data(from.change.path));
  out.setOtherPath(data(from.change.other_path));
  out.setFile(from.change.file.value);
  out.setNumber(from.change.number);
  out.setMode(from.change.mode);
  out.setUid(from.change.uid);
  out.setGid(from.change.gid);
  out.setMtimeNs(from.change.mtime_ns);
  out.setUidBefore(from.change.uid_before);
}
RestoreCounters read(wire::RestoreCounters::Reader from) {
  RestoreCounters to{{from.getEpoch()},
                     read_sequence(from.getSequence()),
                     read_sequence(from.getMirrorSequence()),
                     {from.getImages(), from.getWrittenBytes(), from.getStoredBytes(),
                      from.getDrainedImages(), from.getDrainedBytes()}};
  for (const auto each : from.getEpochs()) {
    to.epochs.push_back({{each.getEpoch()}, read_sequence(each.getRecords())});
  }
  return to;
}

RestoreMirror read(wire::RestoreMirror::Reader from) {
  if (from.getKind() < static_cast<std::uint8_t>(msg::MirrorKind::kRename) ||
      from.getKind() > static_cast<std::uint8_t>(msg::MirrorKind::kSetAside)) {
    corrupt();
  }
  RestoreMirror to;
  to.sequence = from.getSequence();
  to.change.kind = static_cast<msg::MirrorKind>(from.getKind());
  to.change.path = text(from.getPath());
  to.change.other_path = text(from.getOtherPath());
  to.change.file.value = from.getFile();
  to.change.number = from.getNumber();
  to.change.mode = from.getMode();
  to.change.uid = from.getUid();
  to.change.gid = from.getGid();
  to.change.mtime_ns = from.getMtimeNs();
  to.change.uid_before = from.getUidBefore();
  return to;
}

void write(wire::Command::Builder to, const ChangeCopies& from) {
  auto changes = to.initChangeCopies().initChanges(size_of(from.changes.size()));
  for (unsigned i = 0; i < changes.size(); ++i) {
    const ChangeCopies::Change& change = from.changes[i];
    write(changes[i].initAt(), change.at);
    if (change.name.is_named()) changes[i].setName(data(change.name));
    changes[i].setLength(change.length);
    if (change.add.benefactor) write(changes[i].initAdd(), change.add);
    if (change.drop.benefactor) write(changes[i].initDrop(), change.drop);
  }
}
ChangeCopies read(wire::ChangeCopies::Reader from) {
  ChangeCopies to;
  for (const auto change : from.getChanges()) {
    ChangeCopies::Change& made = to.changes.emplace_back();
    made.at = read(change.getAt());
    made.name = read_name(change.getName());
    made.length = change.getLength();
    if (change.hasAdd()) made.add = read(change.getAdd());
    if (change.hasDrop()) made.drop = read(change.getDrop());
  }
  return to;
}

void write(wire::Command::Builder to, const MakeStripes& from) {
  auto stripes = to.initMakeStripes().initStripes(size_of(from.stripes.size()));
  for (unsigned i = 0; i < stripes.size(); ++i) {
    const MakeStripes::Stripe& stripe = from.stripes[i];
    write(stripes[i].initData(size_of(stripe.data.size())), stripe.data);
    write(stripes[i].initParity(size_of(stripe.parity.size())), stripe.parity);
  }
}
MakeStripes read(wire::MakeStripes::Reader from) {
  MakeStripes to;
  for (const auto stripe : from.getStripes()) {
    to.stripes.push_back({read(stripe.getData()), read(stripe.getParity())});
  }
  return to;
}

void write(wire::Command::Builder to, const BeginGeneration& from) {
  auto out = to.initBeginGeneration();
  out.setDirectory(from.directory.value);
  out.setApplication(data(from.application));
  out.setBegun(from.begun);
  out.setEnded(from.ended);
  auto sets = out.initSets(size_of(from.sets.size()));
  for (unsigned i = 0; i < sets.size(); ++i) {
    sets[i].setTimestep(from.sets[i].timestep);
    sets[i].setBegun(from.sets[i].begun);
    sets[i].setEnded(from.sets[i].ended);
    sets[i].setWhole(from.sets[i].whole);
  }
}
BeginGeneration read(wire::BeginGeneration::Reader from) {
  BeginGeneration to{{from.getDirectory()},
                     text(from.getApplication()),
                     from.getBegun(),
                     read_sequence(from.getEnded()),
                     {}};
  for (const auto set : from.getSets()) {
    to.sets.push_back(
        {set.getTimestep(), set.getBegun(), read_sequence(set.getEnded()), set.getWhole()});
  }
  return to;
}

void write(wire::Command::Builder to, const RestoreCalls& from) {
  auto out = to.initRestoreCalls();
  out.setClient(from.client.value);
  out.setForgotten(from.forgotten);
  auto calls = out.initCalls(size_of(from.calls.size()));
  for (unsigned i = 0; i < calls.size(); ++i) calls.set(i, from.calls[i]);
}
RestoreCalls read(wire::RestoreCalls::Reader from) {
  RestoreCalls to{{from.getClient()}, from.getForgotten(), {}};
  for (const std::uint64_t call : from.getCalls()) to.calls.push_back(call);
  return to;
}

Command read(wire::Command::Reader from) {
  switch (from.which()) {
    case wire::Command::BEGIN_EPOCH:
      return BeginEpoch{{from.getBeginEpoch()}};
    case wire::Command::ADD_BENEFACTOR:
      return read(from.getAddBenefactor());
    case wire::Command::COMMIT_VERSION:
      return read(from.getCommitVersion());
    case wire::Command::ADD_DIRECTORY:
      return read_directory(from.getAddDirectory());
    case wire::Command::ADD_SYMLINK:
      return read_symlink(from.getAddSymlink());
    case wire::Command::REMOVE_NAME:
      return read(from.getRemoveName());
    case wire::Command::RENAME_NAME:
      return read(from.getRenameName());
    case wire::Command::CHANGE_ATTRIBUTES:
      return read(from.getChangeAttributes());
    case wire::Command::CHANGE_XATTR:
      return read(from.getChangeXattr());
    case wire::Command::DRAIN_STARTED:
      return DrainStarted{{from.getDrainStarted()}};
    case wire::Command::DRAINED:
      return Drained{{from.getDrained().getFile()}, from.getDrained().getVersion()};
    case wire::Command::EVICT:
      return read(from.getEvict());
    case wire::Command::MIRRORED:
      return Mirrored{from.getMirrored()};
    case wire::Command::MOVE_CHUNKS:
      return read(from.getMoveChunks());
    case wire::Command::RESTORE_FILE:
      return read(from.getRestoreFile());
    case wire::Command::RESTORE_COUNTERS:
      return read(from.getRestoreCounters());
    case wire::Command::RESTORE_MIRROR:
      return read(from.getRestoreMirror());
    case wire::Command::SET_POLICY:
      return read(from.getSetPolicy());
    case wire::Command::SET_LATEST:
      return read(from.getSetLatest());
    case wire::Command::CHANGE_COPIES:
      return read(from.getChangeCopies());
    case wire::Command::MAKE_STRIPES:
      return read(from.getMakeStripes());
    case wire::Command::BEGIN_GENERATION:
      return read(from.getBeginGeneration());
    case wire::Command::DRAIN_LOST:
      return DrainLost{{from.getDrainLost().getFile()}, from.getDrainLost().getVersion()};
    case wire::Command::RESTORE_CALLS:
      return read(from.getRestoreCalls());
  }
  corrupt();
}

}  // namespace

Status encode_command(const Command& command, std::vector<std::byte>& out) {
  try {
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<wire::Command>();
    std::visit([&](const auto& one) { write(root, one); }, command);
    const auto words = capnp::messageToFlatArray(message);
    const auto bytes = words.asBytes();
    out.resize(bytes.size());
    std::memcpy(out.data(), bytes.begin(), bytes.size());
  } catch (const kj::Exception&) {
    return fail(Code::kTooLarge, "journal.encode");
  }
  return {};
}

Result<Command> decode_command(ByteSpan bytes) {
  try {
    const std::size_t words = bytes.size() / sizeof(capnp::word);
    auto aligned = kj::heapArray<capnp::word>(words);
    if (words > 0) std::memcpy(aligned.begin(), bytes.data(), words * sizeof(capnp::word));
    capnp::ReaderOptions options;
    // Lists of structs are read several times while they are decoded.
    options.traversalLimitInWords = 8 * words + 1024;
    capnp::FlatArrayMessageReader reader(aligned, options);
    return read(reader.getRoot<wire::Command>());
  } catch (const kj::Exception&) {
    return fail(Code::kCorrupt, "journal.decode");
  }
}

std::uint32_t record_crc(std::uint64_t sequence, ByteSpan bytes) {
  constexpr std::size_t kSequenceBytes = 8;
  std::array<std::byte, kSequenceBytes + 4> head;
  for (std::size_t i = 0; i < head.size(); ++i) {
    head[i] = i < kSequenceBytes
                  ? static_cast<std::byte>(sequence >> (8 * i))
                  : static_cast<std::byte>(bytes.size() >> (8 * (i - kSequenceBytes)));
  }
  return crc32c(crc32c(0, head), bytes);
}

}  // namespace stdchk::manager

namespace stdchk {

template class OneOf<manager::AnyCommand>;
template OneOf<manager::AnyCommand>::OneOf(manager::BeginEpoch);
template OneOf<manager::AnyCommand>::OneOf(manager::AddBenefactor);
template OneOf<manager::AnyCommand>::OneOf(manager::CommitVersion);
template OneOf<manager::AnyCommand>::OneOf(manager::AddDirectory);
template OneOf<manager::AnyCommand>::OneOf(manager::AddSymlink);
template OneOf<manager::AnyCommand>::OneOf(manager::RemoveName);
template OneOf<manager::AnyCommand>::OneOf(manager::RenameName);
template OneOf<manager::AnyCommand>::OneOf(manager::ChangeAttributes);
template OneOf<manager::AnyCommand>::OneOf(manager::ChangeXattr);
template OneOf<manager::AnyCommand>::OneOf(manager::DrainStarted);
template OneOf<manager::AnyCommand>::OneOf(manager::Drained);
template OneOf<manager::AnyCommand>::OneOf(manager::Evict);
template OneOf<manager::AnyCommand>::OneOf(manager::Mirrored);
template OneOf<manager::AnyCommand>::OneOf(manager::MoveChunks);
template OneOf<manager::AnyCommand>::OneOf(manager::RestoreFile);
template OneOf<manager::AnyCommand>::OneOf(manager::RestoreCounters);
template OneOf<manager::AnyCommand>::OneOf(manager::RestoreMirror);
template OneOf<manager::AnyCommand>::OneOf(manager::SetPolicy);
template OneOf<manager::AnyCommand>::OneOf(manager::SetLatest);
template OneOf<manager::AnyCommand>::OneOf(manager::ChangeCopies);
template OneOf<manager::AnyCommand>::OneOf(manager::MakeStripes);
template OneOf<manager::AnyCommand>::OneOf(manager::BeginGeneration);
template OneOf<manager::AnyCommand>::OneOf(manager::DrainLost);
template OneOf<manager::AnyCommand>::OneOf(manager::RestoreCalls);

}  // namespace stdchk
