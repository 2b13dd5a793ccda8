#include <signal.h>

#include <algorithm>

#include "core/base/limits.h"
#include "tests/conformance/suite.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

constexpr Duration kSlack = 2s;

bool all_ended(const Scene& scene) {
  return std::none_of(scene.transfers.begin(), scene.transfers.end(),
                      [](const Transfer& each) { return each.in_flight(); });
}

/// Starts up to `count` writes of 64 KiB, and does not poll, so that none can complete.
void start_some(Scene& scene, int count) {
  const std::array pieces{scene.local->piece(0, 65536)};
  for (int i = 0; i < count; ++i) {
    Transfer& transfer = scene.transfer();
    if (!scene.local->write(*scene.contact, pieces, scene.contact->key, 0, transfer).has_value()) {
      scene.transfers.pop_back();
      return;
    }
  }
}

/// Every operation ends within its deadline; on_closed comes once, after them.
void expect_end(Scene& scene) {
  bool ended_before_close = true;
  scene.contact->when_closed = [&] { ended_before_close = all_ended(scene); };
  EXPECT(scene,
         scene.local->run_until([&] { return all_ended(scene); }, limits::kRmaDeadline + kSlack));
  EXPECT(scene, scene.local->run_until([&] { return scene.contact->closed == 1; },
                                       limits::kRmaDeadline + kSlack));
  EXPECT(scene, ended_before_close);
  EXPECT(scene, !scene.contact->link->connected());
}

void peer_closes(Scene& scene) {
  // The peer can close only a link that it has accepted.
  EXPECT(scene, scene.local->run_until(
                    [&] { return scene.remote->ask(Verb::kStats).numbers[3] == 1; }, 5s));
  scene.remote->ask(Verb::kPause);
  start_some(scene, 32);
  EXPECT(scene, !scene.transfers.empty());
  scene.remote->ask(Verb::kClose);
  scene.remote->ask(Verb::kResume);
  expect_end(scene);
  scene.contact->when_closed = nullptr;
}

void peer_ends(Scene& scene) {
  start_some(scene, 32);
  EXPECT(scene, !scene.transfers.empty());
  scene.remote.reset();
  expect_end(scene);
  scene.contact->when_closed = nullptr;
}

void peer_is_killed(Scene& scene) {
  if (!scene.process) return scene.skip("the parties are threads of one process");
  for (const bool busy : {true, false}) {
    if (busy) start_some(scene, 32);
    scene.remote->kill();
    expect_end(scene);
    scene.contact->when_closed = nullptr;
    if (!scene.failures.empty() || !busy) return;
    // Repeats the case without transfers: the loss must be noticed even without writing.
    scene.local.reset();
    scene.transfers.clear();
    EXPECT(scene, scene.set_up());
  }
}

void peer_is_stopped(Scene& scene) {
  if (scene.process) {
    scene.remote->signal(SIGSTOP);
  } else {
    scene.remote->ask(Verb::kPause);
  }
  start_some(scene, 8);
  const std::array pieces{scene.local->piece(65536, 65536)};
  Transfer& read = scene.transfer();
  if (!scene.local->read(*scene.contact, pieces, scene.contact->key, 0, read).has_value()) {
    scene.transfers.pop_back();
  }
  EXPECT(scene, !scene.transfers.empty());
  EXPECT(scene,
         scene.local->run_until([&] { return all_ended(scene); }, limits::kRmaDeadline + kSlack));
  // A write that timed out could still land, so its link must close.
  const bool any_failed = std::any_of(scene.transfers.begin(), scene.transfers.end(),
                                      [](const Transfer& each) { return !each.succeeded(); });
  if (any_failed) {
    EXPECT(scene, scene.local->run_until([&] { return scene.contact->closed == 1; }, 1s));
  }
}

void link_destroyed(Scene& scene) {
  for (const bool paused : {false, true}) {
    Contact* const contact = scene.connect();
    EXPECT(scene, contact != nullptr);
    if (paused) scene.remote->ask(Verb::kPause);
    const std::array pieces{scene.local->piece(0, 65536)};
    const std::size_t first = scene.transfers.size();
    for (int i = 0; i < 32; ++i) {
      Transfer& transfer = scene.transfer();
      if (!scene.local->write(*contact, pieces, contact->key, 0, transfer).has_value()) break;
      if (i == 16) scene.local->reactor().run_once(0ns);
    }
    contact->link.reset();
    for (std::size_t i = first; i < scene.transfers.size(); ++i) {
      const Transfer& each = scene.transfers[i];
      EXPECT(scene, !each.in_flight());
      EXPECT(scene, each.completions == 0 || each.code == Code{} || each.code == Code::kCancelled ||
                        each.code == Code::kPeerLost);
    }
    EXPECT(scene, contact->closed == 0);
    scene.remote->ask(Verb::kResume);
  }
  // The endpoint and its other link still work.
  const std::array pieces{scene.local->piece(0, 100)};
  Transfer& transfer = scene.transfer();
  EXPECT(scene, scene.start_write(*scene.contact, pieces, 0, transfer));
  EXPECT(scene, scene.local->run_until([&] { return !transfer.in_flight(); }, 5s));
  EXPECT(scene, transfer.succeeded());
}

/// Makes the remote party a client that writes into local memory without end.
Contact* attacked(Scene& scene) {
  if (!scene.local->listen().has_value()) return nullptr;
  Contact* victim = nullptr;
  scene.local->when_accepted = [&](Contact& contact) { victim = &contact; };
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 41});
  // The remote party waits for the link within the command, so the local party must poll meanwhile.
  bool connected = false;
  std::thread asking([&] {
    connected = scene.remote->ask(Verb::kConnect, {}, scene.local->endpoint().address()).numbers[0];
  });
  scene.local->run_until([&] { return victim != nullptr; }, 6s);
  for (int i = 0; i < 20; ++i) scene.local->run_for(10ms);
  asking.join();
  scene.local->when_accepted = nullptr;
  return connected ? victim : nullptr;
}

void start_writes(Scene& scene, Contact& victim) {
  const transport::RemoteKey key = victim.link->share(scene.local->region());
  scene.remote->ask(Verb::kWrite, {32, 65536, key.key, key.base, key.length});
}

/// Looks at memory while another party writes to it. The race is intended: the answer means only
/// that some bytes have arrived.
__attribute__((no_sanitize("thread"))) bool written(Scene& scene) {
  const volatile std::byte* const memory = scene.local->memory().data();
  for (std::size_t i = 0; i < 65536; ++i) {
    if (memory[i] != std::byte{0}) return true;
  }
  return false;
}

void late_write(Scene& scene) {
  if (scene.capabilities().fence != transport::FenceKind::kImmediate) {
    return scene.skip("fence is kPeerGone");
  }
  for (int round = 0; round < 6; ++round) {
    Contact* const victim = attacked(scene);
    EXPECT(scene, victim != nullptr);
    fill_pattern(scene.local->memory(), 0);
    start_writes(scene, *victim);
    EXPECT(scene, scene.local->run_until([&] { return written(scene); }, 5s));
    if (scene.process) scene.remote->signal(SIGSTOP);
    if (!scene.process && round % 2 == 0) scene.remote->ask(Verb::kPause);
    if (round % 3 == 0) scene.local->run_for(5ms);

    EXPECT(scene, victim->link->fence());
    fill_pattern(scene.local->memory(), 42);  // stands for reuse by another client
    if (scene.process) scene.remote->signal(SIGCONT);
    scene.remote->ask(Verb::kResume);
    scene.local->run_for(100ms);
    EXPECT(scene, first_mismatch(scene.local->memory(), 42) == -1);
    EXPECT(scene, victim->link->fence());
    EXPECT(scene, victim->closed <= 1);
    victim->link.reset();
    EXPECT(scene, first_mismatch(scene.local->memory(), 42) == -1);

    scene.local->contacts().clear();
    scene.local.reset();
    scene.remote.reset();
    EXPECT(scene, scene.set_up());
  }
  scene.measured.fence = "immediate";
}

void fence_waits_for_end(Scene& scene) {
  if (scene.capabilities().fence != transport::FenceKind::kPeerGone) {
    return scene.skip("fence is kImmediate");
  }
  if (!scene.process) return scene.skip("the parties are threads of one process");
  Contact* const victim = attacked(scene);
  EXPECT(scene, victim != nullptr);
  fill_pattern(scene.local->memory(), 0);
  start_writes(scene, *victim);
  EXPECT(scene, scene.local->run_until([&] { return written(scene); }, 5s));
  scene.remote->signal(SIGSTOP);
  EXPECT(scene, !victim->link->fence());
  scene.local->run_for(200ms);
  EXPECT(scene, !victim->link->fence());
  // The resumed peer may close its end of the link by itself; otherwise only the process's end
  // fences it.
  scene.remote->signal(SIGCONT);
  if (!scene.local->run_until([&] { return victim->link->fence(); }, 1s)) {
    scene.remote->kill();
    EXPECT(scene, scene.local->run_until([&] { return victim->link->fence(); }, 5s));
  }
  fill_pattern(scene.local->memory(), 42);
  scene.local->run_for(300ms);
  EXPECT(scene, first_mismatch(scene.local->memory(), 42) == -1);
  scene.measured.fence = "when the peer has ended";
}

/// Reads more bytes than any buffer on the way holds, so that answers are in flight when the peer
/// is lost.
void lose_a_peer_in_the_middle(Scene& scene) {
  const auto peer = Remote::start(scene.subject, scene.process);
  EXPECT(scene, peer != nullptr);
  const std::string address = peer->listen();
  peer->ask(Verb::kFill, {0, kMemoryBytes, 77});
  Contact* const contact = scene.local->connect(address, 5s);
  EXPECT(scene, contact != nullptr);
  EXPECT(scene, scene.local->run_until([&] { return contact->connected == 1; }, 6s));
  EXPECT(scene, scene.get_access(*peer, 0, *contact));
  fill_pattern(scene.local->memory(), 0);
  const std::array pieces{scene.local->piece(0, kMemoryBytes)};
  for (int i = 0; i < 8; ++i) {
    Transfer& transfer = scene.transfer();
    if (scene.local->read(*contact, pieces, contact->key, 0, transfer).has_value()) continue;
    scene.transfers.pop_back();
    break;
  }
  EXPECT(scene, scene.local->run_until([&] { return written(scene); }, 5s));
  if (scene.process) {
    peer->kill();
  } else {
    peer->ask(Verb::kPause);
    peer->ask(Verb::kClose);
  }
  EXPECT(scene,
         scene.local->run_until([&] { return all_ended(scene); }, limits::kRmaDeadline + kSlack));
  scene.local->run_until([&] { return contact->closed == 1; }, limits::kRmaDeadline + kSlack);
}

/// Starts many writes and reads at once; each must transfer its own bytes.
void expect_sound(Scene& scene) {
  constexpr std::size_t kPart = 16384;
  constexpr std::size_t kParts = 32;
  fill_pattern(scene.local->memory(), 78);
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 0});
  const std::size_t first = scene.transfers.size();
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::array pieces{scene.local->piece(i * kPart, kPart)};
    EXPECT(scene, scene.start_write(*scene.contact, pieces, i * kPart, scene.transfer()));
  }
  EXPECT(scene, scene.local->run_until([&] { return all_ended(scene); }, 5s));
  constexpr std::size_t kBytes = kPart * kParts;
  EXPECT(scene, scene.remote->ask(Verb::kMismatch, {0, kBytes, 78}).numbers[0] == -1);
  fill_pattern(scene.local->memory(), 0);
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::array pieces{scene.local->piece(i * kPart, kPart)};
    EXPECT(scene, scene.start_read(*scene.contact, pieces, i * kPart, scene.transfer()));
  }
  EXPECT(scene, scene.local->run_until([&] { return all_ended(scene); }, 5s));
  EXPECT(scene, first_mismatch(scene.local->memory().first(kBytes), 78) == -1);
  for (std::size_t i = first; i < scene.transfers.size(); ++i) {
    EXPECT(scene, scene.transfers[i].succeeded());
  }
}

void other_links_survive(Scene& scene) {
  for (int round = 0; round < 4 && scene.failures.empty(); ++round) {
    lose_a_peer_in_the_middle(scene);
    if (scene.failures.empty()) expect_sound(scene);
  }
}

}  // namespace

const std::vector<Case>& failure_cases() {
  static const std::vector<Case> cases{
      {"a peer that closes ends all operations", peer_closes},
      {"a peer that ends its endpoint ends all operations", peer_ends},
      {"a peer that is killed ends all operations", peer_is_killed},
      {"operations towards a stopped peer end within their deadline", peer_is_stopped},
      {"a peer lost in the middle of a read harms no other link", other_links_survive},
      {"destroying a link ends its operations", link_destroyed},
      {"late write: nothing lands after a fence", late_write},
      {"a fence that needs the peer's end says so until then", fence_waits_for_end},
  };
  return cases;
}

}  // namespace stdchk::conformance
