#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/sim/lost_bytes.h"
#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// The benefactor with this id; null if it has died.
const Cluster::Benefactor* find_benefactor(Cluster& cluster, BenefactorId id);

/// Says why the bytes at `extent` in the arena are not `chunk`. Empty: they are.
std::string check_chunk(const Cluster::Benefactor& benefactor, const Chunk& chunk,
                        const Extent& extent);

/// Checks rule M1: every chunk of every committed map lies within its benefactor's arena, and the
/// bytes there are that chunk. Skips benefactors that have died. Answers the violations.
/// `rotten`: copies that the simulator has corrupted and the pool has not found yet.
std::vector<std::string> check_committed(Cluster& cluster, const std::set<Extent>& rotten = {});

/// A StripeCheck compares parity blocks with docs/internals/formats.md: it computes each block a
/// second time, slowly, from the arenas. It skips stripes of which a block is missing or rotten, and
/// stripes that were right and whose bytes nobody has written since.
class StripeCheck {
 public:
  std::vector<std::string> check(Cluster& cluster, const std::set<Extent>& rotten);

 private:
  /// The data blocks' number, then benefactor, offset, length and stamp of each block.
  using Key = std::vector<std::uint64_t>;
  std::set<Key> right_;  ///< stripes that were right at the last check
};

/// Checks that the manager's metadata are consistent, and that every byte of every arena is claimed
/// once.
std::vector<std::string> check_metadata(Cluster& cluster);

/// Checks the state that the pool must reach after faults have stopped. Every chunk has its wanted
/// number of copies, as far as benefactors and room allow. No two copies are on one host. Chunks in
/// `lost` need none.
std::vector<std::string> check_copies(Cluster& cluster, const LostBytes& lost);

/// Checks what a successful close that waits for copies has promised. Every chunk of that version
/// has its copies on different benefactors, or is in a stripe with parity. With `nothing_lost`, all
/// these blocks must be readable. Skips newer versions and chunks that are only in the drain
/// directory.
std::vector<std::string> check_redundant(Cluster& cluster, FileId file, Version version,
                                         bool nothing_lost);

/// Checks rule M3: of two grants that overlap, only one is known to a client that can write there.
/// Called whenever `who` learns of a grant or gains access to a benefactor. A fenced client may
/// still learn of a grant late; this is harmless.
std::vector<std::string> check_grants(Cluster& cluster, const std::vector<PlainClient*>& clients,
                                      const PlainClient& who);

/// Lists each kind of fault with its count.
std::string describe(const Faults& faults);

/// Checks a pool to which nothing refers any more: all space must be free.
std::vector<std::string> check_empty(Cluster& cluster);

/// Checks arenas after a garbage collection in a pool to which nothing refers: no header of an
/// extent may remain.
std::vector<std::string> check_forgotten(Cluster& cluster);

}  // namespace stdchk::sim
