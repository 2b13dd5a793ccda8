#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manager/audit.h"
#include "tests/unit/manager/world.h"

namespace stdchk::manager::test {

/// Benefactors on hosts, and a client that asks for copies or parity.
struct HostsPool : World {
  /// `copies`: the number of a Redundancy.
  HostsPool(std::uint32_t copies, const std::vector<std::string>& hosts,
            std::uint64_t each_arena_bytes, Config settings = {})
      : arena_bytes(each_arena_bytes) {
    config = std::move(settings);
    config.pool.copies = copies;
    start();
    for (const std::string& host : hosts) add(host);
    client = std::make_unique<TestClient>(*this, "client");
  }
  ~HostsPool() {
    client.reset();
    benefactors.clear();
  }
  TestBenefactor& add(const std::string& host) {
    const auto number = benefactors.size() + 1;
    benefactors.push_back(std::make_unique<TestBenefactor>(*this, "b" + std::to_string(number),
                                                           number, arena_bytes, host));
    return *benefactors.back();
  }
  TestBenefactor& of(BenefactorId id) {
    const auto found = std::find_if(benefactors.begin(), benefactors.end(),
                                    [&](const auto& each) { return each->id == id; });
    REQUIRE(found != benefactors.end());
    return **found;
  }
  /// Time passes, and all that live say so.
  void live(Duration time) {
    constexpr Duration kBeat = std::chrono::seconds(1);
    for (Duration passed{}; passed < time; passed += kBeat) {
      for (const auto& each : benefactors) {
        if (each->peer_lives()) each->beat();
      }
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
      pass(kBeat);
    }
  }
  std::vector<std::string> broken() const { return Audit(*service).reply().broken; }

  const std::uint64_t arena_bytes;
  std::vector<std::unique_ptr<TestBenefactor>> benefactors;
  std::unique_ptr<TestClient> client;
};

}  // namespace stdchk::manager::test
