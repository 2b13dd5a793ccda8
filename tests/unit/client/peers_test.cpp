#include "client/net/peers.h"

#include "tests/support/catch.h"

namespace stdchk::client::test {
namespace {

/// Refuses every connection, and records the attempt.
class ClosedEndpoint final : public transport::Endpoint {
 public:
  ClosedEndpoint(std::string_view name, bool same_host_only, std::vector<std::string>& tried)
      : tried_(tried) {
    capabilities_.name = name;
    capabilities_.same_host_only = same_host_only;
  }
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return {}; }
  Status listen(transport::AcceptHandler&) override { return {}; }
  Result<std::unique_ptr<transport::MemoryRegion>> register_memory(MutableByteSpan) override {
    return fail(Code::kUnsupported, "test.register");
  }
  bool poll() override { return false; }
  int fd() const override { return -1; }
  bool may_sleep() override { return true; }

 private:
  Result<std::unique_ptr<transport::Link>> start_link(std::string_view address,
                                                      transport::LinkHandler&, Duration,
                                                      const transport::secure::Ticket*) override {
    tried_.emplace_back(address);
    return fail(Code::kRefused, "test.connect");
  }
  transport::Capabilities capabilities_;
  std::vector<std::string>& tried_;
};

class OneTransfer final : public Transfer {
 public:
  bool ended = false;

 protected:
  void finished(Status status) override { ended = !status.has_value(); }
};

std::vector<std::string> addresses_tried(const std::string& benefactors_host) {
  std::vector<std::string> tried;
  SystemClock clock;
  Reactor reactor(clock);
  ClosedEndpoint fabric("tcp", false, tried);
  ClosedEndpoint memory("shm", true, tried);
  Peers peers(reactor, {&fabric, &memory}, Peers::Config{"this host"});
  msg::BenefactorInfo info;
  info.id = BenefactorId{7};
  info.host_token = benefactors_host;
  info.addresses = {"tcp:127.0.0.1:1", "shm:name"};
  peers.update({info});
  OneTransfer transfer;
  transfer.at.benefactor = info.id;
  peers.submit(transfer);
  for (int i = 0; i < 100 && !transfer.ended; ++i) reactor.run_once(Duration::zero());
  REQUIRE(transfer.ended);
  return tried;
}

TEST_CASE(
    "a benefactor of this host is reached by shared memory first, another one by the fabric") {
  REQUIRE(addresses_tried("this host") == std::vector<std::string>{"shm:name", "tcp:127.0.0.1:1"});
  REQUIRE(addresses_tried("another host") == std::vector<std::string>{"tcp:127.0.0.1:1"});
}

TEST_CASE("a patient transfer waits for a benefactor that is expected back, until that is over") {
  std::vector<std::string> tried;
  SystemClock clock;
  Reactor reactor(clock);
  ClosedEndpoint fabric("tcp", false, tried);
  Peers peers(reactor, {&fabric}, Peers::Config{"this host"});
  const auto turn = [&] {
    for (int i = 0; i < 100; ++i) reactor.run_once(Duration::zero());
  };
  msg::BenefactorInfo expected;
  expected.id = BenefactorId{7};
  expected.state = msg::BenefactorState::kSilent;
  peers.update({expected});
  OneTransfer hasty;
  OneTransfer patient;
  hasty.at.benefactor = patient.at.benefactor = expected.id;
  patient.patient = true;
  peers.submit(hasty);
  peers.submit(patient);
  turn();
  CHECK(hasty.ended);
  CHECK_FALSE(patient.ended);
  const bool comes = GENERATE(false, true);
  if (comes) {
    expected.addresses = {"tcp:127.0.0.1:1"};
    peers.update({expected});
  } else {
    peers.update({});
  }
  turn();
  CHECK(patient.ended);
  CHECK(tried.size() == (comes ? 1 : 0));
}

}  // namespace
}  // namespace stdchk::client::test
