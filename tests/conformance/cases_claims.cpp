#include <algorithm>

#include "tests/conformance/suite.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBytes = 1 << 20;

/// Writes while the target does not poll, then lets the target poll.
void progress(Scene& scene) {
  for (const std::size_t length : {std::size_t{64}, kBytes}) {
    fill_pattern(scene.local->memory().subspan(0, length), 51);
    scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 0});
    scene.remote->ask(Verb::kPause);
    const std::array pieces{scene.local->piece(0, length)};
    Transfer& transfer = scene.transfer();
    EXPECT(scene, scene.start_write(*scene.contact, pieces, 0, transfer));
    const bool completed = scene.local->run_until([&] { return !transfer.in_flight(); }, 1s);
    const bool there =
        completed && scene.remote->ask(Verb::kMismatch, {0, length, 51}).numbers[0] == -1;
    scene.remote->ask(Verb::kResume);
    if (!completed) {
      EXPECT(scene, scene.local->run_until([&] { return !transfer.in_flight(); }, 5s));
    }
    EXPECT(scene, transfer.succeeded());
    const bool there_later = scene.remote->ask(Verb::kMismatch, {0, length, 51}).numbers[0] == -1;
    // The large write counts: a small one may fit into a buffer on the way.
    scene.measured.needs_target_progress = completed ? "no" : "yes";
    scene.measured.delivered_at_completion = (completed ? there : there_later) ? "yes" : "no";
    if (!scene.capabilities().target_must_progress) EXPECT(scene, completed);
    if (scene.capabilities().write_proof == transport::WriteProof::kDelivered) {
      EXPECT(scene, completed ? there : there_later);
    }
  }
}

const char* name_of(Writer writer) {
  switch (writer) {
    case Writer::kNobodySeen:
      return "hardware, kernel or another process";
    case Writer::kOtherThread:
      return "the initiator";
    case Writer::kFabricLibrary:
      return "the target's fabric library";
    case Writer::kOwnCode:
      break;
  }
  return "the target's own code";
}

/// Checks the claim one_sided: no code of ours in the target's thread may copy a write's bytes into
/// the registered memory. The target must not get messages either.
void one_sided(Scene& scene) {
  const auto before = scene.remote->ask(Verb::kStats).numbers[1];
  for (const std::size_t length : {std::size_t{64}, kBytes}) {
    fill_pattern(scene.local->memory().subspan(0, length), 52);
    scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 0});
    scene.remote->ask(Verb::kWatch);
    const std::array pieces{scene.local->piece(0, length)};
    Transfer& transfer = scene.transfer();
    EXPECT(scene, scene.start_write(*scene.contact, pieces, 0, transfer));
    // A kernel that copies into read-only memory fails the write; this answers the question, too.
    const bool completed = scene.local->run_until([&] { return !transfer.in_flight(); }, 12s);
    const auto writer = static_cast<Writer>(scene.remote->ask(Verb::kWriter).numbers[0]);
    EXPECT(scene, completed);
    scene.measured.who_copies = name_of(writer);
    if (scene.capabilities().one_sided) EXPECT(scene, writer != Writer::kOwnCode);
    EXPECT(scene, scene.remote->ask(Verb::kStats).numbers[1] == before);
    if (!transfer.succeeded()) {
      EXPECT(scene, writer == Writer::kNobodySeen);
      return;  // the failed write has ended the link
    }
    EXPECT(scene, scene.remote->ask(Verb::kMismatch, {0, length, 52}).numbers[0] == -1);
  }
}

}  // namespace

const std::vector<Case>& claim_cases() {
  static const std::vector<Case> cases{
      {"progress: what is said of completion and of the target's part holds", progress},
      {"one-sided: the target's own code does not move the bytes", one_sided},
  };
  return cases;
}

}  // namespace stdchk::conformance
