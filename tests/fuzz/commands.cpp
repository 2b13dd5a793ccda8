#include "tests/fuzz/commands.h"

#include <array>
#include <optional>
#include <utility>

#include "core/base/limits.h"
#include "core/policy/image_name.h"

namespace stdchk::fuzz {
namespace {

using namespace stdchk::manager;

std::uint64_t number(Choices& choices, unsigned bound) {
  const unsigned value = choices.byte();
  return value == 255 ? choices.number() : value % bound;
}
FileId file(Choices& choices) { return {number(choices, 8)}; }
std::string name(Choices& choices) {
  static const std::array<std::string, 10> kNames = {
      "a", "b", "c", "a.N0.T1", "a.N0.T2", "a.N1.T1", kLatestName, "..", "", "a/b"};
  const unsigned value = choices.byte();
  if (value == 255) return text_of(choices.bytes(choices.byte()));
  return kNames[value % kNames.size()];
}
Extent extent(Choices& choices) {
  const BenefactorId benefactor{number(choices, 4)};
  return {benefactor, number(choices, 16) * 128};
}
Chunk chunk(Choices& choices) {
  Chunk made;
  made.name.bytes[31] = static_cast<std::byte>(choices.below(5));  // 0: no name
  made.length = choices.flag() ? 100 : static_cast<std::uint32_t>(number(choices, 1000));
  made.crc = choices.byte();
  for (unsigned i = choices.below(4); i > 0; --i) made.copies.push_back(extent(choices));
  return made;
}
std::vector<Chunk> chunks(Choices& choices) {
  std::vector<Chunk> made;
  for (unsigned i = choices.below(5); i > 0; --i) made.push_back(chunk(choices));
  return made;
}
ChunkMap map(Choices& choices) {
  ChunkMap made;
  made.chunks = chunks(choices);
  std::uint64_t at = 0;
  for (unsigned i = choices.below(5); i > 0; --i) {
    at += number(choices, 100);
    const auto length = static_cast<std::uint32_t>(number(choices, 101));
    made.slices.push_back({at, length, static_cast<std::uint32_t>(number(choices, 20)),
                           static_cast<std::uint32_t>(number(choices, 5))});
    at += length;
  }
  return made;
}
Xattrs xattrs(Choices& choices) {
  Xattrs made;
  for (unsigned i = choices.below(3); i > 0; --i) made.emplace_back(name(choices), name(choices));
  return made;
}
std::uint32_t redundancy(Choices& choices) {
  if (choices.flag()) return 4U << 16 | 1U << 8 | 1;
  return static_cast<std::uint32_t>(number(choices, 6));
}
Policy policy(Choices& choices) {
  Policy made;
  for (unsigned i = choices.below(4); i > 0; --i) {
    made.settings.push_back({static_cast<PolicyKey>(number(choices, 12)), number(choices, 4)});
  }
  return made;
}
std::int64_t time(Choices& choices) { return static_cast<std::int64_t>(number(choices, 100)); }

Caller caller(Choices& choices) { return {{number(choices, 3)}, number(choices, 9)}; }

/// Homes of the chunks of a map: fewer or more than chunks, and also of no benefactor.
std::vector<BenefactorId> homes(Choices& choices) {
  std::vector<BenefactorId> made;
  for (unsigned i = choices.below(5); i > 0; --i) made.push_back({number(choices, 4)});
  return made;
}

CommitVersion commit(Choices& choices) {
  CommitVersion made;
  made.file = file(choices);
  if (choices.flag()) {
    made.create = NewName{file(choices), name(choices), 0644, 1, 2, 3, xattrs(choices)};
  }
  made.cut_before = choices.flag();
  made.cut_bytes = number(choices, 200);
  made.set_size = choices.flag();
  made.size_bytes = number(choices, 400);
  made.now_ns = made.mtime_ns = time(choices);
  made.written = map(choices);
  made.mirror = choices.flag();
  made.copies = redundancy(choices);
  made.opened = number(choices, 10);
  made.replacing = number(choices, 10);
  made.naming = static_cast<NamingState>(made.replacing % 4);
  made.partial = choices.flag();
  made.homes = homes(choices);
  std::uint64_t end = 0;
  for (unsigned i = choices.below(4); i > 0; --i) {
    const Hole hole{end + number(choices, 100), number(choices, 100)};
    end = hole.offset + hole.length;
    made.holes.push_back(hole);
  }
  return made;
}

RestoreFile restore(Choices& choices) {
  RestoreFile made;
  made.attributes.id = file(choices);
  made.attributes.type = static_cast<FileType>(1 + choices.below(3));
  made.attributes.size_bytes = number(choices, 400);
  made.attributes.version = number(choices, 4);
  made.attributes.mtime_ns = time(choices);
  made.parent = file(choices);
  made.name = name(choices);
  made.target = name(choices);
  made.xattrs = xattrs(choices);
  made.map = map(choices);
  made.drained = choices.flag();
  made.evicted = choices.flag();
  made.in_drain = choices.flag();
  made.stale_in_drain = choices.flag();
  made.sequence = number(choices, 10);
  made.policy = policy(choices);
  made.copies = redundancy(choices);
  made.opened = number(choices, 10);
  made.written = number(choices, 10);
  made.aside = number(choices, 10);
  made.staged = choices.flag();
  made.held = choices.flag();
  made.partial = choices.flag();
  made.homes = homes(choices);
  return made;
}

ChangeCopies change_copies(Choices& choices) {
  ChangeCopies made;
  for (unsigned i = choices.below(4); i > 0; --i) {
    const Chunk of = chunk(choices);
    made.changes.push_back({extent(choices), of.name, of.length, extent(choices), extent(choices)});
  }
  return made;
}

/// Commands that make, move and remove names.
std::optional<Command> name_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 5:
      return AddDirectory{file(choices), file(choices),  name(choices),  0755, 1, 2,
                          time(choices), choices.flag(), caller(choices)};
    case 6:
      return AddSymlink{file(choices), file(choices),  name(choices),   name(choices), 1, 2,
                        time(choices), choices.flag(), caller(choices), choices.flag()};
    case 7:
      return RemoveName{file(choices), name(choices),  choices.flag(),
                        time(choices), choices.flag(), caller(choices)};
    case 8:
      return RenameName{file(choices),   name(choices),  file(choices), name(choices),
                        choices.flag(),  choices.flag(), time(choices), choices.flag(),
                        caller(choices), choices.flag(), choices.flag()};
    case 19:
      return SetLatest{file(choices),
                       file(choices),
                       name(choices),
                       {name(choices), choices.below(3)},
                       time(choices)};
    case 25:
      return AddNode{file(choices),
                     file(choices),
                     name(choices),
                     static_cast<FileType>(choices.below(9)),
                     0644,
                     1,
                     2,
                     choices.byte(),
                     time(choices),
                     choices.flag(),
                     caller(choices)};
    case 26:
    case 27:
      return AddLink{file(choices),  file(choices),   name(choices), time(choices),
                     choices.flag(), caller(choices), choices.flag()};
    case 30:
      return NameHeld{file(choices)};
    default:
      return std::nullopt;
  }
}

/// Commands that change files.
std::optional<Command> file_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 2:
    case 3:
    case 4:
      return commit(choices);
    case 31:
      return Closed{file(choices), choices.flag()};
    case 9: {
      ChangeAttributes made;
      made.change.file = file(choices);
      made.change.mask = choices.byte();
      made.mirror = choices.flag();
      made.caller = caller(choices);
      return made;
    }
    case 10: {
      ChangeXattr made;
      made.change.file = file(choices);
      made.change.name = name(choices);
      made.change.value = name(choices);
      made.change.mode = static_cast<msg::XattrMode>(choices.below(3));
      made.change.remove = choices.flag();
      made.caller = caller(choices);
      made.mirror = choices.flag();
      return made;
    }
    case 18:
      return SetPolicy{file(choices), policy(choices), time(choices), caller(choices)};
    default:
      return std::nullopt;
  }
}

/// Commands that change where chunks are.
std::optional<Command> chunk_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 1:
      return AddBenefactor{{number(choices, 4)}, 1, 2, number(choices, 16) * 1024, name(choices)};
    case 13: {
      Evict made{file(choices), number(choices, 4), {}};
      for (unsigned i = choices.below(4); i > 0; --i) {
        made.slices.push_back(static_cast<std::uint32_t>(number(choices, 4)));
      }
      return made;
    }
    case 15: {
      MoveChunks made{{number(choices, 4)}, {}};
      for (unsigned i = choices.below(4); i > 0; --i) {
        made.moves.push_back({number(choices, 16) * 128, number(choices, 16) * 128});
      }
      return made;
    }
    case 20:
      return change_copies(choices);
    case 21: {
      MakeStripes made;
      for (unsigned i = choices.below(3); i > 0; --i) {
        made.stripes.push_back({chunks(choices), chunks(choices)});
      }
      return made;
    }
    default:
      return std::nullopt;
  }
}

/// Commands of the drain and of sets.
std::optional<Command> drain_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 11:
      return DrainStarted{file(choices)};
    case 12:
      return Drained{file(choices), number(choices, 4)};
    case 14:
      return Mirrored{number(choices, 6)};
    case 22: {
      BeginGeneration made{
          file(choices), name(choices), number(choices, 10), number(choices, 10), {}};
      for (unsigned i = choices.below(4); i > 0; --i) {
        made.sets.push_back(
            {number(choices, 4), number(choices, 10), number(choices, 10), number(choices, 4)});
      }
      return made;
    }
    case 23:
      return DrainLost{file(choices), number(choices, 4)};
    default:
      return std::nullopt;
  }
}

/// Commands that a snapshot consists of.
std::optional<Command> snapshot_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 0:
      return BeginEpoch{{number(choices, 4)}};
    case 16:
      return RestoreCounters{{number(choices, 4)}, number(choices, 9), number(choices, 9), {}};
    case 17: {
      RestoreMirror made;
      made.sequence = number(choices, 9);
      made.change.kind = static_cast<msg::MirrorKind>(1 + choices.below(10));
      made.change.path = name(choices);
      made.change.other_path = name(choices);
      made.change.file = file(choices);
      made.change.number = number(choices, 9);
      made.change.uid_before = static_cast<std::uint32_t>(number(choices, 9));
      return made;
    }
    case 24: {
      const Caller by = caller(choices);
      RestoreCalls made{by.client, number(choices, 4), {}};
      for (unsigned i = choices.below(4); i > 0; --i) made.calls.push_back(number(choices, 9));
      return made;
    }
    case 28:
      return RestoreLink{file(choices), file(choices), name(choices), choices.flag(),
                         choices.flag()};
    default:
      return std::nullopt;
  }
}

ApplyNames batch(Choices& choices) {
  ApplyNames made{number(choices, 3), number(choices, 4), {}, choices.flag()};
  for (unsigned i = choices.below(5); i > 0; --i) {
    ApplyNames::Item& one = made.changes.emplace_back();
    one.change.kind = static_cast<msg::NameChangeKind>(1 + choices.below(7));
    one.change.parent = file(choices);
    one.change.name = name(choices);
    one.change.file = file(choices);
    one.change.to_parent = file(choices);
    one.change.to_name = name(choices);
    one.change.mask = choices.byte();
    one.change.time_ns = time(choices);
    one.change.target = name(choices);
    one.change.lease = choices.flag();
    one.copies = redundancy(choices);
  }
  return made;
}

/// Commands on leases of directories.
std::optional<Command> lease_command(unsigned kind, Choices& choices) {
  switch (kind) {
    case 32:
      return LeaseNames{
          file(choices), number(choices, 3), {number(choices, 3)}, number(choices, 3)};
    case 33: {
      EndLeases made{number(choices, 3), {}};
      for (unsigned i = choices.below(3); i > 0; --i) made.directories.push_back(file(choices));
      return made;
    }
    case 34:
      return batch(choices);
    default:
      return std::nullopt;
  }
}

}  // namespace

Command make_command(Choices& choices) {
  static_assert(std::variant_size_v<AnyCommand> == 32);
  const unsigned kind = choices.below(35);
  for (const auto group : {name_command, file_command, chunk_command, drain_command,
                           snapshot_command, lease_command}) {
    if (auto made = group(kind, choices)) return *std::move(made);
  }
  return restore(choices);
}

}  // namespace stdchk::fuzz
