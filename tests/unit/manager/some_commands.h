#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manager/journal/command.h"

namespace stdchk::manager::test {

inline Chunk some_chunk() {
  Chunk chunk;
  chunk.name.bytes[3] = std::byte{9};
  chunk.length = 1000;
  chunk.crc = 77;
  chunk.copies = {{BenefactorId{1}, 64}, {BenefactorId{2}, 128}};
  return chunk;
}

/// A command of each kind, in the order of the journal, with all fields set.
inline std::vector<Command> one_of_each() {
  CommitVersion commit;
  commit.file = {10};
  commit.create = NewName{kRootFile, "a", 0644, 1, 2, 3, {{"user.a", std::string("\0b", 2)}}};
  commit.cut_before = true;
  commit.cut_bytes = 4;
  commit.set_size = true;
  commit.size_bytes = 5000;
  commit.mtime_ns = -6;
  commit.now_ns = 7;
  commit.written = {{some_chunk()}, {{0, 1000, 0, 0}, {2000, 10, 5, 0}}};
  commit.mirror = true;
  commit.copies = 3;
  commit.opened = 9;
  commit.replacing = 5;
  commit.naming = NamingState::kDidNotPay;
  commit.same_as = 6;
  commit.homes = {{4}};
  commit.partial = true;
  commit.holes = {{100, 50}, {300, 1}};
  RestoreFile restore;
  restore.attributes = {{11}, FileType::kRegular, 0600, 1, 2, 1, 500, 0, 3, 4, 5, 6};
  restore.attributes.naming = NamingState::kOn;
  restore.attributes.device = 0x801;
  restore.parent = kRootFile;
  restore.name = "r";
  restore.xattrs = {{"user.b", "c"}};
  restore.map = {{some_chunk()}, {{0, 500, 0, 0}}};
  restore.drained = restore.evicted = restore.in_drain = restore.stale_in_drain = true;
  restore.sequence = 8;
  restore.policy = {{{PolicyKey::kKeep, 2}}};
  restore.copies = 2;
  restore.opened = 6;
  restore.written = 7;
  restore.aside = 9;
  restore.staged = restore.held = restore.partial = true;
  restore.drained_sets = {{"a.*.T1", 4}, {"a.*.T2", 6}};
  restore.homes = {{4}};
  msg::MirrorChange change{msg::MirrorKind::kSetAside, "p", "q", {10}, 2, 0644, 1, 2, 3, 4};
  msg::NameChange named{
      msg::NameChangeKind::kAddSymlink, kRootFile, "n", {60}, {20}, "m", 31, 0640};
  named.uid = 1;
  named.gid = 2;
  named.atime_ns = 3;
  named.mtime_ns = 4;
  named.time_ns = 5;
  named.target = "t";
  named.lease = true;
  const BeginGeneration generation{{20}, "a", 14, 15, {{1, 16, 17}, {3, 14, 0, 18}}};
  return {
      BeginEpoch{{3}},
      AddBenefactor{{1}, 11, 12, 1 << 20, "host"},
      commit,
      AddDirectory{{20}, kRootFile, "d", 0755, 1, 2, 9, true, {{40}, 1}},
      AddSymlink{{22}, kRootFile, "s", "d/a", 3, 4, 9, true, {{40}, 2}, true},
      RemoveName{kRootFile, "x", true, 1, true, {{40}, 3}},
      RenameName{{20}, "a", kRootFile, "b", true, true, 10, true, {{40}, 4}, true, true},
      ChangeAttributes{{{}, {10}, 31, 0600, 1, 2, 3, 4}, 5, true, {{40}, 5}},
      ChangeXattr{{{}, {10}, "user.k", "v", msg::XattrMode::kReplace, true}, 11, {{40}, 6}, true},
      DrainStarted{{10}},
      Drained{{10}, 2},
      Evict{{10}, 2, {0, 5}},
      Mirrored{4},
      MoveChunks{{1}, {{64, 128}, {256, 0}}},
      restore,
      RestoreCounters{{3}, 4, 5, {6, 7, 8, 9, 10}, {{{2}, 11}, {{3}, 12}}},
      RestoreMirror{6, change},
      SetPolicy{{20},
                {{{PolicyKey::kPurgeAfter, 60}, {PolicyKey::kKeep, kPolicyInherit}}},
                12,
                {{40}, 7}},
      SetLatest{{20}, {30}, "a.*.T1", {"a.*.T0", 12}, 13},
      ChangeCopies{{{{{1}, 64}, some_chunk().name, 1000, {{3}, 192}, {{2}, 128}},
                    {{{1}, 256}, {}, 500, {{2}, 64}, {}}}},
      MakeStripes{{{{some_chunk(), {{}, 500, 7, {{{2}, 64}}}}, {{{}, 1000, 8, {{{3}, 128}}}}}}},
      generation,
      DrainLost{{10}, 2},
      RestoreCalls{{40}, 6, {7, 9}},
      AddNode{{50}, kRootFile, "f", FileType::kBlockDevice, 0600, 1, 2, 0x801, 14, true, {{40}, 8}},
      AddLink{{10}, {20}, "l", 15, true, {{40}, 9}, true},
      RestoreLink{{10}, {20}, "l", true, true},
      NameHeld{{22}},
      Closed{{10}, true},
      LeaseNames{{20}, 70, {40}, 3},
      EndLeases{70, {{20}}},
      ApplyNames{70, 4, {{named, 2}}, true}};
}

}  // namespace stdchk::manager::test
