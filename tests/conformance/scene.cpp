#include <fmt/core.h>

#include "core/base/limits.h"
#include "tests/conformance/suite.h"

namespace stdchk::conformance {

using namespace std::chrono_literals;

namespace {

/// Repeats `start` while the queue is full; completions in between make room.
template <class Start>
bool start_with_patience(Party& party, Start start) {
  const Time give_up = party.reactor().clock().now() + 10s;
  for (;;) {
    const Status status = start();
    if (status.has_value()) return true;
    if (status.error().code != Code::kWouldBlock) return false;
    if (party.reactor().clock().now() > give_up) return false;
    party.reactor().run_once(1ms);
  }
}

}  // namespace

bool Scene::set_up() {
  remote = Remote::start(subject, process);
  if (remote == nullptr) return expect(false, "the remote party starts", __FILE__, __LINE__);
  auto party = Party::open(subject);
  if (!party.has_value()) {
    failures.push_back("open: " + describe(party.error()));
    return false;
  }
  local = std::move(*party);
  address = remote->listen();
  contact = connect();
  return expect(contact != nullptr, "the link comes up", __FILE__, __LINE__);
}

Transfer& Scene::transfer() { return transfers.emplace_back(); }

void Scene::wind_up() {
  if (local == nullptr) return;
  for (Transfer& each : transfers) each.then = nullptr;
  for (const auto& each : local->contacts()) {
    each->when_connected = nullptr;
    each->when_message = nullptr;
    each->when_closed = nullptr;
    each->link.reset();
  }
  for (Transfer& each : transfers) {
    expect(!each.in_flight(), "no operation outlives its link", __FILE__, __LINE__);
    expect(each.completions <= 1, "an operation completes once", __FILE__, __LINE__);
    expect(!each.completed_inside_start, "an operation does not complete within the starting call",
           __FILE__, __LINE__);
  }
  for (const auto& each : local->contacts()) {
    expect(each->connected <= 1 && each->closed <= 1, "a link comes up and ends at most once",
           __FILE__, __LINE__);
    expect(!each->called_after_close, "nothing is called after on_closed", __FILE__, __LINE__);
  }
}

Contact* Scene::connect() {
  const std::int64_t heard = remote->ask(Verb::kStats).numbers[0];
  Contact* const made = local->connect(address, 5s);
  if (made == nullptr) return nullptr;
  const bool up = local->run_until([&] { return made->connected + made->closed > 0; }, 6s);
  if (!up || made->connected != 1 || made->closed != 0) return nullptr;
  return get_access(*remote, heard, *made) ? made : nullptr;
}

bool Scene::get_access(Remote& of, std::int64_t heard_before, Contact& over) {
  const auto heard = [&] { return of.ask(Verb::kStats).numbers[0] > heard_before; };
  if (!local->run_until(heard, 6s)) return false;
  over.key = of.key();
  if (!subject.in_parts) return true;
  // The peer's table of keys may still be in flight, so probe with a read.
  Transfer probe;
  const std::array pieces{local->piece(0, 1)};
  const auto started = [&] { return local->read(over, pieces, over.key, 0, probe).has_value(); };
  const bool known = local->run_until(started, 6s);
  local->run_until([&] { return !probe.in_flight(); }, limits::kRmaDeadline + 1s);
  return known && probe.succeeded();
}

bool Scene::expect(bool condition, const char* text, const char* file, int line) {
  if (!condition) failures.push_back(fmt::format("{}:{}: {}", file, line, text));
  return condition;
}

bool Scene::start_write(Contact& to, std::span<const transport::LocalPiece> pieces,
                        std::uint64_t offset, Transfer& transfer) {
  return start_with_patience(*local,
                             [&] { return local->write(to, pieces, to.key, offset, transfer); });
}

bool Scene::start_read(Contact& from, std::span<const transport::LocalPiece> pieces,
                       std::uint64_t offset, Transfer& transfer) {
  return start_with_patience(*local,
                             [&] { return local->read(from, pieces, from.key, offset, transfer); });
}

bool Scene::send(Contact& to, ByteSpan message) {
  return start_with_patience(*local, [&] {
    return to.link == nullptr ? Status(fail(Code::kPeerLost, "send")) : to.link->send(message);
  });
}

}  // namespace stdchk::conformance
