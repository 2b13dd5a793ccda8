#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "client/net/memory.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "core/chunk/erasure.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A StripeReader makes chunks that have no readable copy from other blocks of their stripes. It
/// asks the manager for the blocks, reads as many as the stripe has data blocks, part by part, and
/// computes the chunk. Another block replaces a block that cannot be read.
///
/// | state of a lane | event                                             | next state      |
/// |-----------------|---------------------------------------------------|-----------------|
/// | idle            | a chunk waits                                     | asking          |
/// | asking          | the manager has named enough blocks               | reading         |
/// | asking          | the request failed, or there are too few blocks   | idle, error     |
/// | reading         | the part of each chosen block has arrived         | computing       |
/// | reading         | a part has failed, and enough other blocks remain | reading, anew   |
/// | reading         | a part has failed, and too few blocks remain      | idle, error     |
/// | computing       | the chunk has more parts                          | reading         |
/// | computing       | the chunk is complete                             | idle            |
///
/// Calls `done` of the chunk on the way to idle. A lane that reads anew begins with the first part.
///
/// Owns: memory for one part of each block, allocated at first use.
/// Threads: any, with the lock held.
/// Errors: kNotFound: the chunk is in no stripe. kDataLost: too few blocks are left.
/// Not: a check of the bytes; the caller compares the chunk's checksum.
/// Limits: makes kLanes chunks at a time, the others wait.
class StripeReader {
 public:
  static constexpr std::size_t kLanes = 2;
  static constexpr std::size_t kPartBytes = 512 * 1024;
  using Done = std::function<void(Status)>;

  struct Host {
    Shared& shared;
    std::vector<transport::Endpoint*> endpoints;
    std::function<ClientId()> client;
    /// To be called with the lock held. The callback runs on the reactor's thread without the lock.
    std::function<void(msg::Request, std::function<void(rpc::Answer)>)> call;
    std::function<void(Transfer&)> submit;
    std::function<void(std::function<void()>)> run_later;
  };
  explicit StripeReader(Host host);
  ~StripeReader();

  /// Makes the chunk's content in `to`. Calls `done` once, later, with the lock held.
  void make(const Chunk& chunk, MutableByteSpan to, Done done) STDCHK_REQUIRES(engine_lock);

 private:
  struct Part;
  struct Lane;
  struct Wanted {
    Chunk chunk;
    MutableByteSpan to;
    Done done;
  };

  void start_idle() STDCHK_REQUIRES(engine_lock);
  void ask(Lane& lane) STDCHK_REQUIRES(engine_lock);
  void asked(Lane& lane, const rpc::Answer& answer) STDCHK_EXCLUDES(engine_lock);
  Status prepare(Lane& lane);
  Status choose(Lane& lane) STDCHK_REQUIRES(engine_lock);
  void read_part(Lane& lane) STDCHK_REQUIRES(engine_lock);
  void part_done(Lane& lane, const Part& part, const Status& status) STDCHK_REQUIRES(engine_lock);
  void compute(Lane& lane) STDCHK_REQUIRES(engine_lock);
  void end(Lane& lane, Status status) STDCHK_REQUIRES(engine_lock);

  Host host_;
  std::deque<Wanted> waiting_ STDCHK_GUARDED_BY(engine_lock);
  std::array<std::unique_ptr<Lane>, kLanes> lanes_;
};

}  // namespace stdchk::client
