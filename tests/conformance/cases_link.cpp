#include <algorithm>
#include <cstring>

#include "core/base/limits.h"
#include "tests/conformance/suite.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

std::vector<std::byte> make_message(std::uint64_t seed, std::size_t length) {
  std::vector<std::byte> message(length);
  fill_pattern(message, seed);
  return message;
}

void comes_up(Scene& scene) {
  EXPECT(scene, scene.contact->link->connected());
  EXPECT(scene, scene.contact->connected == 1);
  EXPECT(scene, scene.contact->key.length == kMemoryBytes);
  EXPECT(scene, scene.capabilities().message_bytes_max >= limits::kMessageBytesMax);
  EXPECT(scene, scene.capabilities().rma_bytes_max >= limits::kChunkBytesMax);
  EXPECT(scene, scene.local->run_until(
                    [&] { return scene.remote->ask(Verb::kStats).numbers[3] == 1; }, 5s));
}

void nobody_listens(Scene& scene) {
  auto gone = Remote::start(scene.subject, scene.process);
  EXPECT(scene, gone != nullptr);
  const std::string address = gone->listen();
  gone.reset();
  const Time start = scene.local->reactor().clock().now();
  Contact* const contact = scene.local->connect(address, 2s);
  if (contact == nullptr) return;  // the transport saw at once that no party listens
  EXPECT(scene, contact->closed == 0);
  EXPECT(scene, !contact->link->connected());
  EXPECT(scene, scene.local->run_until([&] { return contact->closed == 1; }, 3s));
  EXPECT(scene, scene.local->reactor().clock().now() - start < 2500ms);
  EXPECT(scene, contact->connected == 0);
  const Status sent = contact->link->send(make_message(1, 8));
  EXPECT(scene, !sent.has_value() && sent.error().code == Code::kPeerLost);
}

void nobody_polls(Scene& scene) {
  scene.remote->ask(Verb::kPause);
  Contact* const contact = scene.local->connect(scene.address, 500ms);
  EXPECT(scene, contact != nullptr);
  // A kernel may accept a link for a stopped program; but connect() must end either way.
  EXPECT(scene,
         scene.local->run_until([&] { return contact->closed + contact->connected > 0; }, 1500ms));
  scene.remote->ask(Verb::kResume);
}

void not_an_address(Scene& scene) {
  for (const char* text : {"", "no such thing", "mem", ":", "tcp:", "tcp:1.2.3.4", "ofi:tcp:"}) {
    Contact* const contact = scene.local->connect(text, 1s);
    if (contact == nullptr) continue;
    EXPECT(scene, scene.local->run_until([&] { return contact->closed == 1; }, 2s));
    EXPECT(scene, contact->connected == 0);
  }
}

void message_sizes(Scene& scene) {
  scene.remote->ask(Verb::kMode, {static_cast<std::uint64_t>(Mode::kEcho)});
  const std::size_t most = scene.capabilities().message_bytes_max;
  std::uint64_t seed = 1;
  for (const std::size_t length : {std::size_t{1}, std::size_t{7}, std::size_t{63}, std::size_t{64},
                                   std::size_t{65}, std::size_t{4095}, std::size_t{4096},
                                   std::size_t{16384}, std::size_t{65537}, most - 1, most}) {
    const auto message = make_message(++seed, length);
    EXPECT(scene, scene.send(*scene.contact, message));
    EXPECT(scene, scene.local->run_until([&] { return !scene.contact->inbox.empty(); }, 5s));
    EXPECT(scene, scene.contact->inbox.front() == message);
    scene.contact->inbox.pop_front();
  }
  const Status sent = scene.contact->link->send(make_message(1, most + 1));
  EXPECT(scene, !sent.has_value() && sent.error().code == Code::kTooLarge);
}

void message_order(Scene& scene) {
  scene.remote->ask(Verb::kMode, {static_cast<std::uint64_t>(Mode::kEcho)});
  constexpr std::uint64_t kCount = 3000;
  std::uint64_t received = 0;
  std::uint64_t wrong = 0;
  scene.contact->when_message = [&](ByteSpan message) {
    std::uint64_t number = 0;
    if (message.size() >= sizeof(number)) std::memcpy(&number, message.data(), sizeof(number));
    if (number != received || message.size() != 8 + number % 3001) ++wrong;
    if (first_mismatch(message.subspan(8), number + 1) >= 0) ++wrong;
    ++received;
    return true;
  };
  for (std::uint64_t i = 0; i < kCount; ++i) {
    std::vector<std::byte> message(8 + i % 3001);
    std::memcpy(message.data(), &i, sizeof(i));
    fill_pattern(MutableByteSpan(message).subspan(8), i + 1);
    EXPECT(scene, scene.send(*scene.contact, message));
  }
  EXPECT(scene, scene.local->run_until([&] { return received == kCount; }, 20s));
  EXPECT(scene, wrong == 0);
}

void full_queue(Scene& scene) {
  scene.remote->ask(Verb::kPause);
  const auto message = make_message(3, 4096);
  std::int64_t sent = 0;
  Status status;
  for (; sent < 20000; ++sent) {
    status = scene.contact->link->send(message);
    if (!status.has_value()) break;
    if (sent % 16 == 0) scene.local->reactor().run_once(0ns);
  }
  EXPECT(scene, !status.has_value());
  EXPECT(scene, status.error().code == Code::kWouldBlock);
  scene.remote->ask(Verb::kResume);
  EXPECT(scene, scene.send(*scene.contact, message));
  ++sent;
  EXPECT(scene, scene.local->run_until(
                    [&] { return scene.remote->ask(Verb::kStats).numbers[1] >= sent; }, 10s));
  EXPECT(scene, scene.remote->ask(Verb::kStats).numbers[1] == sent);
}

void many_links(Scene& scene) {
  scene.remote->ask(Verb::kMode, {static_cast<std::uint64_t>(Mode::kEcho)});
  std::vector<Contact*> contacts;
  for (int i = 0; i < 12; ++i) {
    contacts.push_back(scene.connect());
    EXPECT(scene, contacts.back() != nullptr);
  }
  for (std::size_t i = 0; i < contacts.size(); ++i) {
    EXPECT(scene, scene.send(*contacts[i], make_message(i + 1, 100 + i)));
    Transfer& transfer = scene.transfer();
    fill_pattern(scene.local->memory().subspan(i * 4096, 1000), i + 1);
    const std::array pieces{scene.local->piece(i * 4096, 1000)};
    EXPECT(scene, scene.start_write(*contacts[i], pieces, i * 4096, transfer));
  }
  for (std::size_t i = 0; i < contacts.size(); ++i) {
    EXPECT(scene, scene.local->run_until([&] { return !contacts[i]->inbox.empty(); }, 5s));
    EXPECT(scene, contacts[i]->inbox.front() == make_message(i + 1, 100 + i));
    EXPECT(scene, scene.local->run_until([&] { return !scene.transfers[i].in_flight(); }, 5s));
    EXPECT(scene, scene.transfers[i].succeeded());
    EXPECT(scene, scene.remote->ask(Verb::kMismatch, {i * 4096, 1000, i + 1}).numbers[0] == -1);
  }
  // Closing a link leaves the others open.
  contacts[0]->link.reset();
  EXPECT(scene, scene.send(*contacts[1], make_message(9, 9)));
  EXPECT(scene, scene.local->run_until([&] { return contacts[1]->inbox.size() == 2; }, 5s));
}

void close_is_heard(Scene& scene) {
  Contact* const other = scene.connect();
  EXPECT(scene, other != nullptr);
  scene.contact->link.reset();
  EXPECT(scene, scene.local->run_until(
                    [&] { return scene.remote->ask(Verb::kStats).numbers[2] == 1; }, 5s));
  scene.remote->ask(Verb::kClose);
  EXPECT(scene, scene.local->run_until([&] { return other->closed == 1; }, 5s));
  EXPECT(scene, !other->link->connected());
  const Status sent = other->link->send(make_message(1, 8));
  EXPECT(scene, !sent.has_value() && sent.error().code == Code::kPeerLost);
  Transfer& transfer = scene.transfer();
  const std::array pieces{scene.local->piece(0, 8)};
  const Status status = scene.local->write(*other, pieces, other->key, 0, transfer);
  EXPECT(scene, !status.has_value() && status.error().code == Code::kPeerLost);
  EXPECT(scene, !transfer.in_flight());
  EXPECT(scene, scene.connect() != nullptr);  // both parties still work
}

void handler_destroys_link(Scene& scene) {
  scene.remote->ask(Verb::kMode, {static_cast<std::uint64_t>(Mode::kEcho)});
  for (int round = 0; round < 5; ++round) {
    Contact* contact = scene.local->connect(scene.address, 5s);
    EXPECT(scene, contact != nullptr);
    contact->when_connected = [contact] { contact->link.reset(); };
    EXPECT(scene, scene.local->run_until([&] { return contact->connected == 1; }, 5s));

    contact = scene.connect();
    EXPECT(scene, contact != nullptr);
    contact->when_message = [contact](ByteSpan) {
      contact->link.reset();
      return true;
    };
    for (int i = 0; i < 10; ++i) EXPECT(scene, scene.send(*contact, make_message(1, 100)));
    EXPECT(scene, scene.local->run_until([&] { return contact->link == nullptr; }, 5s));
    scene.local->run_for(20ms);
    EXPECT(scene, contact->messages == 1);

    contact = scene.connect();
    EXPECT(scene, contact != nullptr);
    const std::array pieces{scene.local->piece(0, 4096)};
    const std::size_t first = scene.transfers.size();
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT(scene, scene.start_write(*contact, pieces, 0, scene.transfer()));
      if (contact->link == nullptr) break;
    }
    scene.transfers[first + 10].then = [contact] { contact->link.reset(); };
    EXPECT(scene,
           scene.local->run_until(
               [&] { return contact->link == nullptr || !scene.transfers[first + 10].in_flight(); },
               5s));
    contact->link.reset();
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT(scene, scene.transfers[first + i].completions == 1);
    }
  }
  scene.contact->when_closed = [&] { scene.contact->link.reset(); };
  scene.remote->ask(Verb::kClose);
  EXPECT(scene, scene.local->run_until([&] { return scene.contact->closed == 1; }, 5s));
  EXPECT(scene, scene.contact->link == nullptr);
}

}  // namespace

const std::vector<Case>& link_cases() {
  static const std::vector<Case> cases{
      {"a link comes up with the limits that stdchk needs", comes_up},
      {"connecting to nobody fails within its deadline", nobody_listens},
      {"connecting to one who does not poll ends within its deadline", nobody_polls},
      {"text that is no address is refused", not_an_address},
      {"messages of every size arrive as they were sent", message_sizes},
      {"messages arrive in order, once", message_order},
      {"a full message queue would block, and loses nothing", full_queue},
      {"many links do not mix", many_links},
      {"a close is heard by the other side", close_is_heard},
      {"a handler may destroy its link in every callback", handler_destroys_link},
  };
  return cases;
}

}  // namespace stdchk::conformance
