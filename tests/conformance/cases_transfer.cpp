#include <algorithm>
#include <cstring>
#include <functional>

#include "core/base/limits.h"
#include "tests/conformance/suite.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

bool finished(Scene& scene, Transfer& transfer, Duration timeout = 10s) {
  return scene.local->run_until([&] { return !transfer.in_flight(); }, timeout);
}

/// Writes a header and the two halves of a content as three pieces, looks at the target's memory
/// around them, reads them back.
bool round_trip(Scene& scene, std::size_t head, std::size_t body, std::size_t local_offset,
                std::uint64_t remote_offset, std::uint64_t seed) {
  const std::size_t total = head + body;
  std::vector<std::byte> bytes(total);
  fill_pattern(bytes, seed);
  const MutableByteSpan memory = scene.local->memory();
  const std::size_t body_at = memory.size() / 2 + local_offset + 3;
  std::memcpy(memory.data() + local_offset, bytes.data(), head);
  // The second half lies before the first.
  const std::size_t first = body / 2;
  const std::size_t second = body - first;
  std::memcpy(memory.data() + body_at + second, bytes.data() + head, first);
  std::memcpy(memory.data() + body_at, bytes.data() + head + first, second);
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 0});

  std::vector<transport::LocalPiece> pieces{scene.local->piece(local_offset, head)};
  if (first > 0) pieces.push_back(scene.local->piece(body_at + second, first));
  if (second > 0) pieces.push_back(scene.local->piece(body_at, second));
  Transfer& write = scene.transfer();
  if (!scene.start_write(*scene.contact, pieces, remote_offset, write)) return false;
  if (!finished(scene, write) || !write.succeeded()) return false;
  if (scene.capabilities().write_proof == transport::WriteProof::kNone) {
    if (!scene.local->run_until(
            [&] {
              return scene.remote->ask(Verb::kMismatch, {remote_offset, total, seed}).numbers[0] <
                     0;
            },
            5s)) {
      return false;
    }
  }
  if (scene.remote->ask(Verb::kMismatch, {remote_offset, total, seed}).numbers[0] != -1)
    return false;
  if (scene.remote->ask(Verb::kMismatch, {0, remote_offset, 0}).numbers[0] != -1) return false;
  const std::uint64_t end = remote_offset + total;
  if (scene.remote->ask(Verb::kMismatch, {end, kMemoryBytes - end, 0}).numbers[0] != -1) {
    return false;
  }

  std::memset(memory.data(), 0x5A, memory.size());
  const std::size_t cut = total / 3;
  pieces = {scene.local->piece(local_offset + 1, total - cut)};
  if (cut > 0) pieces.push_back(scene.local->piece(body_at, cut));
  Transfer& read = scene.transfer();
  if (!scene.start_read(*scene.contact, pieces, remote_offset, read)) return false;
  if (!finished(scene, read) || !read.succeeded()) return false;
  std::vector<std::byte> got(total);
  std::memcpy(got.data(), memory.data() + local_offset + 1, total - cut);
  std::memcpy(got.data() + (total - cut), memory.data() + body_at, cut);
  return got == bytes && memory[local_offset] == std::byte{0x5A} &&
         memory[local_offset + 1 + total - cut] == std::byte{0x5A} &&
         memory[body_at + cut] == std::byte{0x5A};
}

void odd_sizes(Scene& scene) {
  std::uint64_t seed = 10;
  for (const std::size_t body :
       {0U, 1U, 7U, 63U, 64U, 65U, 1000U, 4096U, 4097U, 16384U, 65539U, 1048576U}) {
    const std::size_t head = body % 2 == 0 ? 64 : 1;
    const std::size_t local_offset = body % 4 == 0 ? 0 : 13;
    const std::uint64_t remote_offset = body % 3 == 0 ? 4096 : 77;
    ++seed;
    EXPECT(scene, round_trip(scene, head, body, local_offset, remote_offset, seed));
  }
  // Writes up to the region's end, then at its beginning.
  EXPECT(scene, round_trip(scene, 64, 1000, 5, kMemoryBytes - 1064, ++seed));
  EXPECT(scene, round_trip(scene, 64, 1000, 5, 0, ++seed));
}

void many_in_flight(Scene& scene) {
  constexpr std::size_t kCount = 2000;
  constexpr std::size_t kBytes = 2048;
  constexpr std::size_t kSlots = kMemoryBytes / kBytes / 2;
  fill_pattern(scene.local->memory(), 21);
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 0});
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t at = (i % kSlots) * kBytes;
    const std::array pieces{scene.local->piece(at, kBytes)};
    EXPECT(scene, scene.start_write(*scene.contact, pieces, at, scene.transfer()));
  }
  const auto all_done = [&] {
    return std::none_of(scene.transfers.begin(), scene.transfers.end(),
                        [](const Transfer& each) { return each.in_flight(); });
  };
  EXPECT(scene, scene.local->run_until(all_done, 20s));
  const auto failed = std::count_if(scene.transfers.begin(), scene.transfers.end(),
                                    [](const Transfer& each) { return !each.succeeded(); });
  EXPECT(scene, failed == 0);
  const std::uint64_t used = kSlots * kBytes;
  EXPECT(scene, scene.local->run_until(
                    [&] {
                      return scene.remote->ask(Verb::kMismatch, {0, used, 21}).numbers[0] < 0;
                    },
                    5s));
  EXPECT(scene,
         scene.remote->ask(Verb::kMismatch, {used, kMemoryBytes - used, 0}).numbers[0] == -1);

  // The same back, into the other half.
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::array pieces{scene.local->piece(used + i * kBytes, kBytes)};
    EXPECT(scene, scene.start_read(*scene.contact, pieces, i * kBytes, scene.transfer()));
  }
  EXPECT(scene, scene.local->run_until(all_done, 20s));
  EXPECT(scene, first_mismatch(scene.local->memory().subspan(used, used), 21) == -1);
}

void full_operation_queue(Scene& scene) {
  scene.remote->ask(Verb::kPause);
  fill_pattern(scene.local->memory(), 22);
  const std::array pieces{scene.local->piece(0, 65536)};
  Status status;
  for (int i = 0; i < 5000; ++i) {
    Transfer& transfer = scene.transfer();
    status = scene.local->write(*scene.contact, pieces, scene.contact->key, 0, transfer);
    if (!status.has_value()) break;
  }
  EXPECT(scene, !status.has_value());
  EXPECT(scene, status.error().code == Code::kWouldBlock);
  EXPECT(scene, !scene.transfers.back().in_flight());
  EXPECT(scene, scene.transfers.back().completions == 0);
  scene.transfers.pop_back();
  scene.remote->ask(Verb::kResume);
  EXPECT(scene, scene.start_write(*scene.contact, pieces, 0, scene.transfer()));
  EXPECT(scene, scene.local->run_until(
                    [&] {
                      return std::all_of(scene.transfers.begin(), scene.transfers.end(),
                                         [](const Transfer& each) { return each.succeeded(); });
                    },
                    20s));
}

/// Makes a transfer on a new link; it must fail and change no memory.
bool must_fail(Scene& scene, bool write, std::uint64_t offset, std::size_t length,
               const std::function<void(transport::RemoteKey&)>& change = {}) {
  Contact* const contact = scene.connect();
  if (contact == nullptr) return false;
  transport::RemoteKey key = contact->key;
  if (change) change(key);
  Transfer& transfer = scene.transfer();
  fill_pattern(scene.local->memory(), 31);
  const std::array pieces{scene.local->piece(0, length)};
  const Status started = write ? scene.local->write(*contact, pieces, key, offset, transfer)
                               : scene.local->read(*contact, pieces, key, offset, transfer);
  if (started.has_value() && (!finished(scene, transfer, 15s) || transfer.succeeded()))
    return false;
  contact->link.reset();
  scene.local->run_for(20ms);
  return first_mismatch(scene.local->memory(), 31) == -1 &&
         scene.remote->ask(Verb::kMismatch, {0, kMemoryBytes, 30}).numbers[0] == -1;
}

void bounds(Scene& scene) {
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 30});
  // Requests of a faulty or malicious client.
  const auto larger = [](transport::RemoteKey& key) { key.length += 1 << 20; };
  for (const bool write : {true, false}) {
    EXPECT(scene, must_fail(scene, write, kMemoryBytes - 99, 100));
    EXPECT(scene, must_fail(scene, write, kMemoryBytes, 1));
    EXPECT(scene, must_fail(scene, write, ~std::uint64_t{0} - 50, 100));
    EXPECT(scene, must_fail(scene, write, kMemoryBytes - 99, 100, larger));
    EXPECT(scene, must_fail(scene, write, kMemoryBytes + 4096, 100, larger));
  }
}

void bad_key(Scene& scene) {
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 30});
  for (const std::uint64_t change : {std::uint64_t{1}, std::uint64_t{0xFFFF}, ~std::uint64_t{0}}) {
    const auto wrong = [change](transport::RemoteKey& key) { key.key ^= change; };
    EXPECT(scene, must_fail(scene, true, 0, 100, wrong));
    EXPECT(scene, must_fail(scene, false, 0, 100, wrong));
  }
}

void key_of_another_link(Scene& scene) {
  Contact* const other = scene.connect();
  EXPECT(scene, other != nullptr);
  const transport::RemoteKey theirs = other->key;
  if (theirs == scene.contact->key) return scene.skip("a key is good on every link");
  scene.remote->ask(Verb::kFill, {0, kMemoryBytes, 30});
  for (const bool write : {true, false}) {
    EXPECT(scene,
           must_fail(scene, write, 0, 100, [&](transport::RemoteKey& key) { key = theirs; }));
  }
  // The key's own link still works.
  Transfer& transfer = scene.transfer();
  const std::array pieces{scene.local->piece(0, 100)};
  EXPECT(scene, scene.start_read(*other, pieces, 0, transfer));
  EXPECT(scene, finished(scene, transfer) && transfer.succeeded());
}

void bad_pieces(Scene& scene) {
  Transfer& transfer = scene.transfer();
  const auto piece = scene.local->piece(0, 8);
  const std::vector too_many(transport::kPiecesMax + 1, piece);
  EXPECT(
      scene,
      !scene.local->write(*scene.contact, too_many, scene.contact->key, 0, transfer).has_value());
  EXPECT(scene,
         !scene.local->write(*scene.contact, {}, scene.contact->key, 0, transfer).has_value());
  EXPECT(scene, !transfer.in_flight());
}

void seen_at_once(Scene& scene) {
  if (scene.capabilities().write_proof == transport::WriteProof::kNone) {
    return scene.skip("write_proof is kNone");
  }
  scene.remote->ask(Verb::kMode, {static_cast<std::uint64_t>(Mode::kVerify)});
  std::uint64_t answers = 0;
  std::uint64_t wrong = 0;
  scene.contact->when_message = [&](ByteSpan message) {
    ++answers;
    if (message.size() != 1 || message[0] != std::byte{1}) ++wrong;
    return true;
  };
  // In half of the rounds the message takes another link: the proof does not depend on order.
  Contact* const other = scene.connect();
  EXPECT(scene, other != nullptr);
  other->when_message = scene.contact->when_message;
  constexpr std::uint64_t kRounds = 4000;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const std::size_t length = round % 16 == 0 ? 100000 : 1 + (round * 37) % 9000;
    const Probe probe{(round * 4099) % 1000000, length, round};
    fill_pattern(scene.local->memory().subspan(0, length), round);
    const std::size_t cut = std::min<std::size_t>(length, 64);
    std::vector<transport::LocalPiece> pieces{scene.local->piece(0, cut)};
    if (length > cut) pieces.push_back(scene.local->piece(cut, length - cut));
    scene.transfers.clear();
    Transfer& transfer = scene.transfer();
    EXPECT(scene, scene.start_write(*scene.contact, pieces, probe.offset, transfer));
    EXPECT(scene, finished(scene, transfer) && transfer.succeeded());
    EXPECT(scene, scene.send(round % 2 == 0 ? *scene.contact : *other,
                             std::as_bytes(std::span(&probe, 1))));
    EXPECT(scene, scene.local->run_until([&] { return answers == round; }, 5s));
    EXPECT(scene, wrong == 0);
  }
}

}  // namespace

const std::vector<Case>& transfer_cases() {
  static const std::vector<Case> cases{
      {"writes and reads of odd sizes and offsets, in pieces", odd_sizes},
      {"many operations in flight", many_in_flight},
      {"a full operation queue would block, and loses nothing", full_operation_queue},
      {"access outside a region fails and changes nothing", bounds},
      {"access with a wrong key fails and changes nothing", bad_key},
      {"a key of one link is of no use on another", key_of_another_link},
      {"an operation without sensible pieces is not started", bad_pieces},
      {"the target sees a completed write at once", seen_at_once},
  };
  return cases;
}

}  // namespace stdchk::conformance
