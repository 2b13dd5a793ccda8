#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/lifetime.h"
#include "core/base/result.h"
#include "core/runtime/reactor.h"
#include "manager/journal/journal.h"
#include "manager/pool/benefactor_status.h"
#include "manager/pool/config.h"
#include "manager/pool/failure_domains.h"
#include "manager/pool/journal_writer.h"
#include "manager/space/space.h"
#include "manager/state/state.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A Pool is what the manager knows of its pool: the durable state, the free space of all arenas,
/// and the benefactors. Planners and services read it, and change it by commands.
///
/// Owns: the state, the space, the benefactors' status. Not: the journal, the links to benefactors.
/// Threads: the reactor's.
/// Errors: after the journal has failed, every command fails with kReadOnly.
class Pool {
 public:
  /// `on_durable` is called after each command that has become durable.
  Pool(Reactor& reactor, Journal& journal, Config config, std::function<void()> on_durable);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Loads the journal, and takes the places of all chunks out of the free space.
  Status load();
  /// Expires when the pool ends: callbacks check it first.
  Lifetime::Watch alive() const { return lifetime_.watch(); }
  /// Ends all callbacks. Returns false when they have ended already.
  bool end_callbacks() {
    lifetime_.end();
    return !std::exchange(ended_, true);
  }

  // ---- time and settings ----
  Reactor& reactor() { return reactor_; }
  Time now() const { return reactor_.clock().now(); }
  std::int64_t wall_ns() const { return reactor_.clock().wall_ns(); }
  const Config& config() const { return config_; }
  void set_standby(const std::string& address) { config_.standby = address; }
  bool has_drain() const { return !config_.pool.drain_directory.empty(); }
  /// Returns the policy in force: settings of the file's folders, then the pool's.
  Policy policy(const File& file) const;
  /// Returns an id that was never used: its upper bits are the epoch.
  std::uint64_t next_id() { return (state_.epoch().value << 40) | ++last_id_; }
  /// Returns the first of `count` such ids, which follow each other.
  std::uint64_t next_ids(std::uint32_t count) {
    last_id_ += count;
    return last_id() - count + 1;
  }
  std::uint64_t last_id() const { return (state_.epoch().value << 40) | last_id_; }
  static Epoch epoch_of(ClientId client) { return Epoch{client.value >> 40}; }

  // ---- state ----
  const State& state() const { return state_; }
  /// For changes of the state's soft part only: pins, holds, pending files. The durable part
  /// changes by execute().
  State& soft_state() { return state_; }
  JournalWriter& journal() { return journal_; }
  const JournalWriter& journal() const { return journal_; }
  void execute(Command command, JournalWriter::Done done) {
    journal_.execute(std::move(command), std::move(done));
  }
  Status pin(FileId file, Version version) { return state_.pin(file, version); }
  void unpin(FileId file, Version version);
  void unkeep(FileId file);
  void hold(ChunkIndex chunk);
  void release(ChunkIndex chunk);
  /// The holds of planners, for callers that recount references.
  const std::map<ChunkIndex, std::uint32_t>& held() const { return held_; }

  // ---- space ----
  Space& space() { return space_; }
  const Space& space() const { return space_; }

  // ---- benefactors ----
  const Benefactors& benefactors() const { return benefactors_; }
  Benefactors& mutable_benefactors() { return benefactors_; }
  const FailureDomains& domains() const { return domains_; }
  /// Call it after each change of benefactors that concerns where copies may go.
  void update_domains() { domains_.update(benefactors_); }
  rpc::Peer* peer_of(BenefactorId benefactor) const;
  /// Returns a connected benefactor, a different one each time.
  std::optional<BenefactorId> some_benefactor();
  /// Returns true when the benefactor is not known, or was silent for so long that it is not
  /// expected back.
  bool is_presumed_lost(BenefactorId benefactor) const;
  /// Returns true when all benefactors are connected or not expected back.
  bool benefactors_settled() const {
    return std::ranges::none_of(benefactors_, [](const auto& each) {
      return each.second.info.state == msg::BenefactorState::kSilent;
    });
  }
  /// Describes the benefactor `source`, with a ticket by which the benefactor `reader` may read
  /// there as client `number`.
  msg::BenefactorInfo source(BenefactorId source, BenefactorId reader, ClientId number) const;

  // ---- copies of chunks ----
  /// Notes that the bytes at that place are not the chunk's.
  void mark_wrong(const Extent& extent) { wrong_.insert(extent); }
  bool is_wrong(const Extent& extent) const { return wrong_.count(extent) > 0; }
  /// Returns true for a copy that readers may use: its benefactor is not gone, and it is not known
  /// to be wrong.
  bool is_readable(const Extent& copy) const;
  /// Returns true when one of the chunk's copies is readable.
  bool is_readable(ChunkIndex chunk) const;
  /// Returns true for a readable copy on a benefactor that is connected and alive.
  bool is_reachable(const Extent& copy) const;
  /// Returns true when one of the copies is reachable.
  bool is_reachable(const std::vector<Extent>& copies) const;
  /// Returns true when enough members of the chunk's stripe are readable to reconstruct the chunk.
  bool is_reconstructible(ChunkIndex chunk) const;

 private:
  Reactor& reactor_;
  Config config_;
  State state_;
  Space space_;
  JournalWriter journal_;
  Benefactors benefactors_;
  FailureDomains domains_;
  std::set<Extent> wrong_;  ///< places whose bytes are not their chunk's
  std::map<ChunkIndex, std::uint32_t> held_;
  std::uint64_t last_id_ = 0;
  std::uint64_t last_benefactor_ = 0;
  Lifetime lifetime_;
  bool ended_ = false;
};

}  // namespace stdchk::manager
