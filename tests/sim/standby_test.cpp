// Tests a standby with unmodified benefactors and clients, which find it by themselves.
#include <optional>

#include "client/net/manager_client.h"
#include "core/base/log.h"
#include "manager/recovery/log_replicas.h"
#include "manager/recovery/rebuilder.h"
#include "tests/support/catch.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSilence = 5s;
/// The time that docs/guide/failures.md states for a manager whose process is lost or stopped.
constexpr Duration kTakeover = 15s;

/// A Somebody is a client: it makes folders and looks up folders.
class Somebody final : public client::ManagerListener {
 public:
  Somebody(Cluster& cluster, const std::string& name, std::string managers)
      : cluster_(cluster), node_(cluster.add_node(name)) {
    client::ManagerClient::Config config;
    config.address = std::move(managers);
    config.registration.host_name = name;
    manager_ = std::make_unique<client::ManagerClient>(node_.reactor, node_.endpoint,
                                                       std::move(config), *this);
    manager_->start();
    REQUIRE(cluster_.run_until([&] { return manager_->registered(); }, 10s));
  }
  ~Somebody() override {
    manager_.reset();
    cluster_.remove_node(node_);
  }
  void on_registered(const msg::RegisterClient::Reply&, bool) override {}
  void on_invalidate(const msg::Invalidate&) override {}

  void begin(const std::string& name, std::optional<rpc::Answer>& answer) {
    manager_->call(msg::MakeDirectory{manager_->client(), kRootFile, name, 0755}, 60s,
                   [&answer](rpc::Answer got) { answer = std::move(got); });
  }
  /// Repeats the call as an application would, until it succeeds or `time` is over.
  bool make(const std::string& name, Duration time) {
    const Time end = cluster_.now() + time;
    while (cluster_.now() < end) {
      if (!manager_->registered()) {
        cluster_.run_until([&] { return manager_->registered(); }, end - cluster_.now());
        continue;
      }
      std::optional<rpc::Answer> answer;
      begin(name, answer);
      if (!cluster_.run_until([&] { return answer.has_value(); }, 60s)) return false;
      if (answer->has_value()) return true;
      cluster_.run_for(100ms);
    }
    return false;
  }
  bool finds(const std::string& name) {
    std::optional<rpc::Answer> answer;
    manager_->call(msg::Lookup{manager_->client(), kRootFile, name}, 30s,
                   [&answer](rpc::Answer got) { answer = std::move(got); });
    return cluster_.run_until([&] { return answer.has_value(); }, 60s) && answer->has_value();
  }
  Epoch epoch() const { return manager_->epoch(); }

 private:
  Cluster& cluster_;
  Node& node_;
  std::unique_ptr<client::ManagerClient> manager_;
};

struct Pool {
  Pool() : cluster(options()) {
    log::start("test", log::Level::kError);
    cluster.start_manager();
    for (int i = 0; i < 3; ++i) cluster.add_benefactor();
    REQUIRE(
        cluster.run_until([&] { return cluster.manager()->planners().logs.count() == 3; }, 10s));
    cluster.start_standby(kSilence);
    REQUIRE(cluster.run_until([&] { return cluster.standby()->follows(); }, 10s));
    cluster.run_for(2s);
  }
  static Cluster::Options options() {
    Cluster::Options options;
    options.hosts = 3;
    options.managers = Cluster::manager_addresses();
    return options;
  }
  /// Manager after the take-over; none: no take-over yet.
  manager::Service* successor() {
    manager::Service* const now = cluster.manager();
    return now != nullptr && now->state().epoch() >= Epoch{manager::kEpochBlock} ? now : nullptr;
  }
  std::size_t benefactors_of(manager::Service& service) {
    std::size_t count = 0;
    for (const auto& [id, status] : service.pool().benefactors())
      count += status.peer != nullptr ? 1 : 0;
    return count;
  }

  Cluster cluster;
};

}  // namespace

TEST_CASE("when a manager is killed its standby serves within the stated time, with all of it") {
  Pool pool;
  Somebody client(pool.cluster, "client", Cluster::manager_addresses());
  REQUIRE(client.make("a", 1s));
  pool.cluster.kill_manager();
  const Time lost = pool.cluster.now();
  REQUIRE(client.make("b", kTakeover));
  CHECK(pool.cluster.now() - lost >= kSilence - 1s);
  CHECK(client.finds("a"));
  CHECK(client.epoch() == Epoch{manager::kEpochBlock});
  REQUIRE(pool.successor() != nullptr);
  CHECK(pool.cluster.run_until([&] { return pool.benefactors_of(*pool.successor()) == 3; },
                               kTakeover));
}

TEST_CASE(
    "a manager that was stopped and wakes up answers nothing any more and hears of the other") {
  Pool pool;
  Somebody client(pool.cluster, "client", Cluster::manager_addresses());
  Somebody old(pool.cluster, "old", Cluster::manager_address());
  REQUIRE(client.make("a", 1s));
  // A change is in flight when the manager is stopped.
  std::optional<rpc::Answer> late;
  Node& stopped = pool.cluster.manager_node();
  stopped.stopped = true;
  old.begin("late", late);
  const Time lost = pool.cluster.now();
  REQUIRE(pool.cluster.run_until([&] { return pool.successor() != nullptr; }, kTakeover));
  REQUIRE(client.make("b", kTakeover));
  CHECK(pool.cluster.now() - lost <= kTakeover);
  CHECK(client.finds("a"));

  stopped.stopped = false;
  pool.cluster.run_for(10s);
  CHECK(pool.cluster.faults().superseded == 1);
  CHECK((!late || !late->has_value()));
  CHECK_FALSE(client.finds("late"));
  CHECK(client.finds("b"));
}

TEST_CASE("a standby that is cut off leaves the manager alone, and follows it again") {
  Pool pool;
  Somebody client(pool.cluster, "client", Cluster::manager_addresses());
  transport::fault::FaultEndpoint& standby = pool.cluster.standby()->node().endpoint;
  standby.stall_to(Cluster::manager_address(), true);
  pool.cluster.run_for(10s);
  // Benefactors without links ask the standby first.
  for (const auto& each : pool.cluster.benefactors()) each.node->endpoint.drop_links();
  pool.cluster.run_for(60s);
  CHECK(pool.successor() == nullptr);
  CHECK(client.make("a", 1s));
  standby.stall_to(Cluster::manager_address(), false);
  pool.cluster.run_for(10s);
  pool.cluster.kill_manager();
  REQUIRE(client.make("b", kTakeover));
  CHECK(client.finds("a"));
}

}  // namespace stdchk::sim
