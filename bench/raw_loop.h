#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "client/memory.h"
#include "core/limits.h"
#include "core/reactor.h"
#include "transport/factory.h"
#include "transport/rpc.h"

namespace stdchk::bench {

[[noreturn]] void give_up(const std::string& what);

template <class T>
T must(Result<T> result, const char* what) {
  if (!result.has_value()) give_up(std::string(what) + ": " + describe(result.error()));
  return std::move(*result);
}

void must_ok(const Status& status, const char* what);

double seconds_since(Time start);

struct Settings {
  std::string manager;
  msg::Secret secret;
  std::string transport = "shm";
  std::uint64_t image_bytes = limits::kGiB;
  std::uint32_t chunk_bytes = limits::kChunkBytesDefault;
  std::uint64_t window_bytes = limits::kWindowBytesDefault;
  int rounds = 5;
};

/// A RawLoop is the ceiling: a program that writes chunks into the benefactors' memory by itself,
/// as fast as the transport takes them, and keeps no promise.
///
/// Owns: a client id of the pool, links to all benefactors, a window. Threads: one.
/// Errors: ends the program.
class RawLoop final : public rpc::PeerHandler {
 public:
  explicit RawLoop(const Settings& settings);
  ~RawLoop() override;

  /// GB/s from the first byte until all are delivered. With `copies`, each chunk is copied into its
  /// slot first; else what lies in the slots is written.
  double run(ByteSpan image, bool copies);

  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
  void on_closed(rpc::Peer&, Error why) override { give_up(describe(why)); }

 private:
  struct Target {
    std::unique_ptr<rpc::Peer> peer;
    transport::RemoteKey key;
  };
  struct Slot final : transport::Operation {
    RawLoop* loop = nullptr;
    std::byte* data = nullptr;
    Target* target = nullptr;
    std::uint64_t offset = 0;
    std::size_t length = 0;

   protected:
    void complete(Status status) override {
      must_ok(status, "raw write");
      --loop->in_flight_;
    }
  };
  std::size_t stride() const { return settings_.chunk_bytes + 4096; }
  Slot& free_slot();
  void start_write(Slot& slot);
  void attach(const msg::BenefactorInfo& info);
  std::unique_ptr<rpc::Peer> connect(transport::Endpoint& endpoint, const std::string& address);
  template <class M>
  typename M::Reply call(rpc::Peer& peer, M request);

  const Settings settings_;
  SystemClock clock_;
  Reactor reactor_{clock_};
  std::unique_ptr<transport::Endpoint> control_;  ///< the manager is reached by TCP
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<client::Memory> memory_;
  std::deque<Slot> slots_;
  std::unique_ptr<rpc::Peer> manager_;
  std::map<BenefactorId, Target> targets_;
  ClientId client_;
  std::size_t next_slot_ = 0;
  std::size_t in_flight_ = 0;
  int runs_ = 0;
};

}  // namespace stdchk::bench
