// Tests several network paths ("rails") to one benefactor.
#include <array>
#include <memory>
#include <vector>

#include "client/net/peers.h"
#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "transport/fault/fault.h"
#include "transport/mem/mem.h"

namespace stdchk::client::test {
namespace {

using namespace std::chrono_literals;
using transport::fault::FaultEndpoint;

constexpr std::size_t kBytes = 64 * limits::kKiB;
constexpr Duration kTurn = 100us;

/// A benefactor's address. Answers every Attach with its memory's key.
class Target final : public transport::AcceptHandler, public rpc::PeerHandler {
 public:
  Target(Reactor& reactor, std::unique_ptr<transport::Endpoint> endpoint, MutableByteSpan memory)
      : reactor_(reactor), endpoint_(std::move(endpoint)) {
    reactor_.add(*endpoint_);
    auto region = endpoint_->register_memory(memory);
    REQUIRE(region.has_value());
    region_ = std::move(*region);
    REQUIRE(endpoint_->listen(*this).has_value());
  }
  ~Target() override {
    peers_.clear();
    region_.reset();
    reactor_.remove(*endpoint_);
  }
  std::string address() const { return endpoint_->address(); }
  std::size_t attached = 0;

  void on_accept(std::unique_ptr<transport::Link> link) override {
    peers_.push_back(std::make_unique<rpc::Peer>(reactor_, std::move(link), *this));
  }
  void on_request(rpc::Peer& peer, msg::RequestEnvelope, Time, rpc::Responder respond) override {
    ++attached;
    const transport::RemoteKey key = peer.link().share(*region_);
    respond(msg::Reply(msg::Attach::Reply{key.key, key.base, key.length}));
  }
  void on_closed(rpc::Peer&, Error) override {}

 private:
  Reactor& reactor_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<transport::MemoryRegion> region_;
  std::vector<std::unique_ptr<rpc::Peer>> peers_;
};

/// Repeats its write until the test stops it.
class Writer final : public Transfer {
 public:
  explicit Writer(class Rails& rails) : rails_(rails) {}
  void begin();

 protected:
  void finished(Status status) override;

 private:
  class Rails& rails_;
};

/// A client with two network interfaces, and a benefactor with two addresses.
class Rails {
 public:
  Rails() {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string number = std::to_string(i);
      targets_.push_back(std::make_unique<Target>(
          reactor_, fabric_.make_endpoint("target" + number, clock_), target_memory_));
      ours.push_back(std::make_unique<FaultEndpoint>(fabric_.make_endpoint("ours" + number, clock_),
                                                     clock_, 5));
      reactor_.add(*ours.back());
    }
    const std::vector<transport::Endpoint*> endpoints{ours[0].get(), ours[1].get()};
    auto memory = Memory::create(kBytes, endpoints);
    REQUIRE(memory.has_value());
    memory_ = std::move(*memory);
    peers_ = std::make_unique<Peers>(reactor_, endpoints, Peers::Config{"this host"});
    msg::BenefactorInfo info;
    info.id = id;
    info.host_token = "this host";
    info.addresses = {targets_[0]->address(), targets_[1]->address()};
    peers_->update({info});
  }
  ~Rails() {
    ending_ = true;
    peers_.reset();
    memory_.reset();
    for (const auto& each : ours) reactor_.remove(*each);
  }
  Transfer& prepare(Transfer& transfer) {
    transfer.is_write = true;
    transfer.at = Extent{id, 0};
    transfer.memory = memory_.get();
    transfer.pieces = {memory_->bytes().first(kBytes), {}};
    return transfer;
  }
  void write(std::size_t count) {
    left = count;
    std::vector<std::unique_ptr<Writer>> writers;
    writers.reserve(8);
    for (int i = 0; i < 8; ++i) writers.push_back(std::make_unique<Writer>(*this));
    for (const auto& each : writers) each->begin();
    for (int turns = 0; turns < 100000 && at_work > 0; ++turns) turn();
    REQUIRE(at_work == 0);
  }
  void turn() {
    reactor_.run_once(Duration::zero());
    clock_.advance(kTurn);
  }
  void wait(Duration time) {
    for (Duration waited{}; waited < time; waited += kTurn) turn();
  }
  /// How often each interface was used; only delayed operations count.
  std::array<std::uint64_t, 2> used() const {
    return {ours[0]->counts().delayed, ours[1]->counts().delayed};
  }
  void slow_down(std::size_t index, Duration delay_max) {
    ours[index]->plan().delay_ppm = 1000000;
    ours[index]->plan().delay_max = delay_max;
  }
  Rail::State state(std::size_t index) { return (*peers_->rails(id))[index]->state(); }
  void submit(Transfer& transfer) { peers_->submit(transfer); }
  bool ending() const { return ending_; }
  std::size_t attached(std::size_t index) const { return targets_[index]->attached; }

  const BenefactorId id{7};
  std::vector<std::unique_ptr<FaultEndpoint>> ours;
  std::size_t left = 0;
  std::size_t at_work = 0;
  std::size_t failed = 0;
  std::size_t failed_without_other_rail = 0;

 private:
  ManualClock clock_;
  Reactor reactor_{clock_};
  transport::mem::Fabric fabric_;
  std::vector<std::byte> target_memory_ = std::vector<std::byte>(kBytes);
  std::vector<std::unique_ptr<Target>> targets_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Peers> peers_;
  bool ending_ = false;
};

void Writer::begin() {
  if (rails_.left == 0) return;
  --rails_.left;
  ++rails_.at_work;
  rails_.submit(rails_.prepare(*this));
}

void Writer::finished(Status status) {
  --rails_.at_work;
  if (rails_.ending()) return;
  if (!status.has_value()) {
    ++rails_.failed;
    rails_.failed_without_other_rail += has_other_rail ? 0 : 1;
  }
  begin();
}

TEST_CASE("writes are spread over the rails of a benefactor by what each has shown to carry") {
  Rails rails;
  rails.slow_down(0, 2ms);
  rails.slow_down(1, 16ms);
  rails.write(2000);
  const auto [fast, slow] = rails.used();
  REQUIRE(rails.failed == 0);
  REQUIRE(slow > 0);
  REQUIRE(fast > 3 * slow);
}

TEST_CASE("equal rails carry equal shares") {
  Rails rails;
  rails.slow_down(0, 4ms);
  rails.slow_down(1, 4ms);
  rails.write(2000);
  const auto [one, other] = rails.used();
  REQUIRE(one < 2 * other);
  REQUIRE(other < 2 * one);
}

TEST_CASE("a rail that is lost is parked, the other carries on, and it is taken again") {
  Rails rails;
  rails.slow_down(0, 2ms);
  rails.slow_down(1, 2ms);
  rails.write(200);
  REQUIRE(rails.state(1) == Rail::State::kReady);
  // The rail fails with writes in flight.
  rails.ours[1]->stall(true);
  rails.left = 0;
  std::vector<std::unique_ptr<Writer>> writers;
  writers.reserve(8);
  for (int i = 0; i < 8; ++i) writers.push_back(std::make_unique<Writer>(rails));
  rails.left = 8;
  for (const auto& each : writers) each->begin();
  rails.wait(20ms);
  REQUIRE(rails.at_work > 0);
  rails.ours[1]->drop_links();
  rails.ours[1]->stall(false);
  rails.ours[1]->plan().drop_ppm = 1000000;  // the rail does not reconnect either
  rails.wait(20ms);
  REQUIRE(rails.at_work == 0);
  REQUIRE(rails.failed > 0);
  REQUIRE(rails.failed_without_other_rail == 0);
  REQUIRE(rails.state(1) == Rail::State::kParked);
  const std::size_t failed = rails.failed;
  const std::uint64_t before = rails.used()[0];
  rails.write(500);
  REQUIRE(rails.failed == failed);
  REQUIRE(rails.used()[0] > before + 400);
  // The network is repaired: the next writes after the back-off open the rail again.
  rails.ours[1]->plan().drop_ppm = 0;
  rails.wait(6s);
  rails.write(200);
  rails.wait(20ms);
  REQUIRE(rails.state(1) == Rail::State::kReady);
  const std::uint64_t idle = rails.used()[1];
  rails.write(200);
  REQUIRE(rails.used()[1] > idle + 20);
}

TEST_CASE("without any rail writes fail at once, and the benefactor is one to avoid") {
  Rails rails;
  rails.write(20);
  for (const auto& each : rails.ours) {
    each->drop_links();
    each->plan().drop_ppm = 1000000;
  }
  rails.wait(20ms);
  rails.write(20);
  REQUIRE(rails.failed >= 20);
  REQUIRE(rails.failed_without_other_rail > 0);
}

}  // namespace
}  // namespace stdchk::client::test
