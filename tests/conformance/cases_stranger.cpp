#include <algorithm>

#include "tests/conformance/suite.h"
#include "transport/choice/factory.h"
#include "transport/secure/handshake.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBytes = 65536;
constexpr std::uint64_t kOurs = 51;    ///< pattern of the memory under attack
constexpr std::uint64_t kTheirs = 52;  ///< pattern that the stranger writes

std::unique_ptr<Party> open_stranger(Scene& scene) {
  Subject kind;
  kind.open = scene.subject.open_stranger;
  auto party = Party::open(kind);
  return party.has_value() ? std::move(*party) : nullptr;
}

/// Whether the device fixes the access rights of its queue pairs.
bool is_iwarp(const std::string& address) {
  return std::ranges::any_of(transport::rdma_ports(), [&](const transport::verbs::Port& port) {
    return port.kind == "iWARP" && std::ranges::any_of(port.addresses, [&](const auto& each) {
             return address.find(each) != std::string::npos;
           });
  });
}

/// Why the rule does not apply to this subject; empty: it applies.
std::string why_not(const Scene& scene, bool in_parts) {
  if (!scene.subject.open_stranger) return "whoever has a way in and a key has access";
  if (scene.subject.in_parts != in_parts) {
    return in_parts ? "the region's key is told with it" : "the key is of no use without a table";
  }
  if (!in_parts && is_iwarp(scene.address)) return "iWARP: a queue pair has its rights for good";
  return {};
}

bool run_both(Scene& scene, Party& stranger, const std::function<bool()>& done, Duration timeout) {
  const auto once = [&] {
    stranger.reactor().run_once(0ns);
    return done();
  };
  return scene.local->run_until(once, timeout);
}

/// Checks that the access fails and that both memories are unchanged. The access may end the link.
void expect_kept_out(Scene& scene, Party& stranger, Contact& way_in, bool writes,
                     const transport::RemoteKey& key) {
  fill_pattern(stranger.memory(), writes ? kTheirs : 0);
  Transfer& transfer = scene.transfer();
  const std::array pieces{stranger.piece(0, kBytes)};
  const Status started = writes ? stranger.write(way_in, pieces, key, 0, transfer)
                                : stranger.read(way_in, pieces, key, 0, transfer);
  EXPECT(scene, started.has_value());
  EXPECT(scene, run_both(
                    scene, stranger, [&] { return transfer.completions == 1; }, 10s));
  EXPECT(scene, !transfer.succeeded());
  EXPECT(scene, first_mismatch(stranger.memory(), writes ? kTheirs : 0) == -1);
}

void expect_ours_unchanged(Scene& scene) {
  EXPECT(scene, scene.remote->ask(Verb::kMismatch, {0, kMemoryBytes, kOurs}).numbers[0] == -1);
}

void expect_members_served(Scene& scene) {
  Contact* const fresh = scene.connect();
  EXPECT(scene, fresh != nullptr);
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, kOurs});
  for (Contact* const member : {scene.contact, fresh}) {
    fill_pattern(scene.local->memory(), 0);
    const std::array pieces{scene.local->piece(0, kMemoryBytes)};
    Transfer& read = scene.transfer();
    EXPECT(scene, scene.start_read(*member, pieces, 0, read));
    EXPECT(scene, scene.local->run_until([&] { return !read.in_flight(); }, 5s));
    EXPECT(scene, read.succeeded());
    EXPECT(scene, first_mismatch(scene.local->memory(), kOurs) == -1);
    Transfer& write = scene.transfer();
    EXPECT(scene, scene.start_write(*member, pieces, 0, write));
    EXPECT(scene, scene.local->run_until([&] { return !write.in_flight(); }, 5s));
    EXPECT(scene, write.succeeded());
  }
}

/// Connects the stranger, with or without a greeting, which is as far as a stranger gets.
Contact* come_in(Scene& scene, Party& stranger, bool greets) {
  Contact* const way_in = stranger.connect(scene.address, 5s);
  if (way_in == nullptr) return nullptr;
  if (!stranger.run_until([&] { return way_in->connected + way_in->closed > 0; }, 6s)) {
    return nullptr;
  }
  if (!greets) return way_in;
  const transport::secure::LinkName name{{transport::secure::Role::kClient, {}}};
  auto handshake = transport::secure::Handshake::connecting({name, Secret{{std::byte{1}}}},
                                                            transport::secure::Handshake::fresh());
  if (!way_in->link->send(handshake.hello()).has_value()) return nullptr;
  return stranger.run_until([&] { return !way_in->inbox.empty(); }, 6s) ? way_in : nullptr;
}

void key_is_not_enough(Scene& scene) {
  if (auto why = why_not(scene, false); !why.empty()) return scene.skip(std::move(why));
  const auto stranger = open_stranger(scene);
  EXPECT(scene, stranger != nullptr);
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, kOurs});
  for (const bool greets : {false, true}) {
    for (const bool writes : {false, true}) {
      Contact* const way_in = come_in(scene, *stranger, greets);
      EXPECT(scene, way_in != nullptr);
      expect_kept_out(scene, *stranger, *way_in, writes, scene.contact->key);
      expect_ours_unchanged(scene);
      EXPECT(scene, scene.failures.empty());
    }
  }
  expect_members_served(scene);
}

/// The same rule when the member connects to the stranger.
void listener_is_kept_out(Scene& scene) {
  if (auto why = why_not(scene, false); !why.empty()) return scene.skip(std::move(why));
  const auto stranger = open_stranger(scene);
  EXPECT(scene, stranger != nullptr);
  EXPECT(scene, stranger->listen().has_value());
  fill_pattern(scene.local->memory(), kOurs);
  for (const bool writes : {false, true}) {
    Contact* way_in = nullptr;
    stranger->when_accepted = [&](Contact& contact) { way_in = &contact; };
    Contact* const contact = scene.local->connect(stranger->endpoint().address(), 2s);
    EXPECT(scene, contact != nullptr);
    const auto greeted = [&] { return way_in != nullptr && !way_in->inbox.empty(); };
    EXPECT(scene, run_both(scene, *stranger, greeted, 5s));
    expect_kept_out(scene, *stranger, *way_in, writes, scene.local->region().remote_key());
    EXPECT(scene, first_mismatch(scene.local->memory(), kOurs) == -1);
    EXPECT(scene, run_both(
                      scene, *stranger, [&] { return contact->closed == 1; }, 6s));
    EXPECT(scene, contact->connected == 0);
  }
  stranger->when_accepted = nullptr;
  expect_members_served(scene);
}

void no_table_is_told(Scene& scene) {
  if (auto why = why_not(scene, true); !why.empty()) return scene.skip(std::move(why));
  const auto stranger = open_stranger(scene);
  EXPECT(scene, stranger != nullptr);
  for (const bool greets : {false, true}) {
    Contact* const way_in = come_in(scene, *stranger, greets);
    EXPECT(scene, way_in != nullptr && way_in->connected == 1);
    stranger->run_for(300ms);
    Transfer& transfer = scene.transfer();
    const std::array pieces{stranger->piece(0, kBytes)};
    const Status started = stranger->read(*way_in, pieces, scene.contact->key, 0, transfer);
    EXPECT(scene, !started.has_value());
    EXPECT(scene, started.error().code == Code::kInvalidArgument);
  }
  expect_members_served(scene);
}

}  // namespace

const std::vector<Case>& stranger_cases() {
  static const std::vector<Case> cases{
      {"a stranger's key opens no memory before the handshake", key_is_not_enough},
      {"a stranger that is connected to reaches no memory", listener_is_kept_out},
      {"a stranger is told no table of keys", no_table_is_told},
  };
  return cases;
}

}  // namespace stdchk::conformance
