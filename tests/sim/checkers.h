#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/sim/lost_bytes.h"
#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// Null: it has died.
const Cluster::Benefactor* find_benefactor(Cluster& cluster, BenefactorId id);

/// Why what lies at that place of the arena is not the chunk; empty: it is.
std::string check_chunk(const Cluster::Benefactor& benefactor, const Chunk& chunk,
                        const Extent& extent);

/// Rule M1: every chunk of every committed map lies within the arena of its benefactor, and what is
/// there is that chunk. Benefactors that have died are left out. Answers what is wrong.
/// `rotten`: what a test has changed and nobody has found yet.
std::vector<std::string> check_committed(Cluster& cluster, const std::set<Extent>& rotten = {});

/// Parity blocks are what docs/formats.md says, computed once more in the simplest way from what is
/// in the arenas; stripes with a block that is gone or `rotten` are left out.
std::vector<std::string> check_stripes(Cluster& cluster, const std::set<Extent>& rotten);

/// The manager's metadata hold together, and every byte of every arena is claimed once.
std::vector<std::string> check_metadata(Cluster& cluster);

/// What must come to be when faults have stopped: every chunk has the copies that it should have,
/// as far as there are benefactors and room, and no two on one host. What was lost has none.
std::vector<std::string> check_copies(Cluster& cluster, const LostBytes& lost);

/// What a close that waits for copies has been answered: every chunk of that version has its copies
/// on different benefactors, or is in a stripe with its parity. With `nothing_lost` all of these
/// can be read. A newer version, and what is only in the drain directory, are left out.
std::vector<std::string> check_redundant(Cluster& cluster, FileId file, Version version,
                                         bool nothing_lost);

/// Rule M3: of two grants that overlap, only one is known to someone who can write there. Asked
/// whenever `who` has come to know more or to reach more. A grant that is heard of late, by a
/// client that was fenced meanwhile, is no harm.
std::vector<std::string> check_grants(Cluster& cluster, const std::vector<PlainClient*>& clients,
                                      const PlainClient& who);

/// In words, each kind with its number.
std::string describe(const Faults& faults);

/// What the pool holds when nothing refers to it any more: all space is free.
std::vector<std::string> check_empty(Cluster& cluster);

/// What arenas hold after a round of the garbage collection when nothing refers to anything any
/// more: no header of an extent.
std::vector<std::string> check_forgotten(Cluster& cluster);

}  // namespace stdchk::sim
