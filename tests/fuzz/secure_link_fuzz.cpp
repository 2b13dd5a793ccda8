// Arbitrary bytes control the frames between two members, from the handshake on. Frames pass, or
// are dropped, repeated, changed, cut or invented. Each member must receive a prefix of the other's
// messages, in order, and nothing else.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "tests/fuzz/choices.h"
#include "transport/mem/mem.h"
#include "transport/sealed/sealed.h"

using namespace stdchk;
using namespace stdchk::transport;
using namespace std::chrono_literals;
using secure::Role;
using secure::SecureEndpoint;
using Message = std::vector<std::byte>;

namespace {

constexpr int kTurnsMax = 24;

/// An end of a link, with its recorded events.
struct Side : LinkHandler, AcceptHandler {
  void on_accept(std::unique_ptr<Link> taken) override {
    link = std::move(taken);
    link->set_handler(*this);
  }
  void on_connected(Link&) override {}
  void on_message(Link&, ByteSpan message) override {
    messages.emplace_back(message.begin(), message.end());
  }
  void on_closed(Link&, Error) override {}
  bool usable() const { return link != nullptr && link->connected(); }
  std::unique_ptr<Link> link;
  std::vector<Message> messages;
};

/// Forwards each frame to the other side, or changes the frame.
class Middle {
 public:
  explicit Middle(fuzz::Choices& choices) : choices_(choices) {}
  void pass(Side& from, const Side& to) {
    for (Message& frame : std::exchange(from.messages, {})) change(std::move(frame), to);
  }
  bool has_changed() const { return has_changed_; }

 private:
  static void send(const Message& frame, const Side& to) {
    if (to.usable()) (void)to.link->send(frame);
  }
  void change(Message frame, const Side& to) {
    const unsigned what = choices_.below(6);
    const Message before = frame;
    has_changed_ |= what == 1 || what == 2 || what == 5;
    if (what == 1) return;
    if (what == 2) send(frame, to);
    if (what == 3 && !frame.empty())
      frame[choices_.byte() % frame.size()] ^= std::byte{choices_.byte()};
    if (what == 4) frame.resize(frame.size() - choices_.byte() % (frame.size() + 1));
    if (what == 5) {
      const ByteSpan made_up = choices_.bytes(choices_.byte());
      frame.assign(made_up.begin(), made_up.end());
    }
    has_changed_ |= frame != before;
    send(frame, to);
  }
  fuzz::Choices& choices_;
  bool has_changed_ = false;
};

Message message_of(bool of_client, int number) {
  return {std::byte{of_client}, static_cast<std::byte>(number)};
}

void check(const Side& to, bool of_client, int sent, bool whole) {
  STDCHK_ASSERT(to.messages.size() <= static_cast<std::size_t>(sent));
  STDCHK_ASSERT(!whole || to.messages.size() == static_cast<std::size_t>(sent));
  for (int i = 0; i < static_cast<int>(to.messages.size()); ++i) {
    STDCHK_ASSERT(to.messages[static_cast<std::size_t>(i)] == message_of(of_client, i));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::start("fuzz", log::Level::kError);
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  mem::Fabric fabric;
  ManualClock clock;
  using secure::Keyring;
  const auto manager = std::make_shared<Keyring>(Keyring::of_root({}, secure::kAnyManager));
  const auto own =
      std::make_shared<Keyring>(Keyring::of_member(manager->key_of({Role::kClient, {}})));
  SecureEndpoint member(fabric.make_endpoint("member", clock), clock, manager);
  SecureEndpoint client(fabric.make_endpoint("client", clock), clock, own);
  const auto between = fabric.make_endpoint("middle", clock);
  Side at_member, at_client, nearer, onward;
  STDCHK_ASSERT(member.listen(at_member).has_value() && between->listen(nearer).has_value());
  onward.link = std::move(*between->connect("mem:member", onward, 1s));
  at_client.link = std::move(*client.connect("mem:middle", at_client, 1s));
  Middle middle(choices);
  int by_client = 0, by_member = 0;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const bool last = turn + 8 >= kTurnsMax;  // messages in flight arrive
    for (Endpoint* const each :
         {static_cast<Endpoint*>(&member), static_cast<Endpoint*>(&client), between.get()}) {
      each->poll();
    }
    middle.pass(nearer, onward);
    middle.pass(onward, nearer);
    if (last) continue;
    if (at_client.usable() && at_client.link->send(message_of(true, by_client)).has_value())
      ++by_client;
    if (at_member.usable() && at_member.link->send(message_of(false, by_member)).has_value())
      ++by_member;
  }
  const bool whole = !middle.has_changed();
  STDCHK_ASSERT(!whole || (by_client > 0 && by_member > 0));
  check(at_member, true, by_client, whole);
  check(at_client, false, by_member, whole);
  for (Side* const each : {&at_member, &at_client, &nearer, &onward}) each->link.reset();
  return 0;
}
