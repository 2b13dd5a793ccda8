#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "client/memory.h"
#include "client/peers.h"
#include "client/shared.h"
#include "core/erasure.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A StripeReader makes chunks of which no copy can be read from other blocks of their stripes: it
/// asks the manager which there are, reads as many as the stripe has data, part by part, and
/// computes. A block that cannot be read is replaced by another one.
///
/// | state of a lane | leaves when                                                       |
/// |-----------------|-------------------------------------------------------------------|
/// | idle            | a chunk waits -> asking                                           |
/// | asking          | the manager has told the blocks -> reading; too few -> idle, done |
/// | reading         | a part of each block is there, or has failed -> computing, reading|
/// | computing       | -> reading the next part; idle, done                              |
///
/// Owns: memory for a part of each block, made when it is needed first.
/// Threads: any with the lock held.
/// Errors: kNotFound: the chunk is in no stripe. kDataLost: too few blocks are left. Not: whether
///   the bytes are right, which the chunk's checksum tells.
/// Limits: kLanes chunks at a time, the others wait.
class StripeReader {
 public:
  static constexpr std::size_t kLanes = 2;
  static constexpr std::size_t kPartBytes = 512 * 1024;
  using Done = std::function<void(Status)>;

  struct Host {
    Shared& shared;
    std::vector<transport::Endpoint*> endpoints;
    std::function<ClientId()> client;
    /// Lock held; the callback runs on the reactor's thread without it.
    std::function<void(msg::Request, std::function<void(rpc::Answer)>)> call;
    std::function<void(Transfer&)> submit;
    std::function<void(std::function<void()>)> run_later;
  };
  explicit StripeReader(Host host);
  ~StripeReader();

  /// Makes the chunk's content in `to`. `done` is called once, with the lock held, not from within.
  void make(const Chunk& chunk, MutableByteSpan to, Done done);

 private:
  struct Part;
  struct Lane;
  struct Wanted {
    Chunk chunk;
    MutableByteSpan to;
    Done done;
  };

  void start_idle();
  void ask(Lane& lane);
  void asked(Lane& lane, const rpc::Answer& answer);
  Status prepare(Lane& lane);
  Status choose(Lane& lane);
  void read_part(Lane& lane);
  void part_done(Lane& lane, const Part& part, const Status& status);
  void compute(Lane& lane);
  void end(Lane& lane, Status status);

  Host host_;
  std::deque<Wanted> waiting_;
  std::array<std::unique_ptr<Lane>, kLanes> lanes_;
};

}  // namespace stdchk::client
