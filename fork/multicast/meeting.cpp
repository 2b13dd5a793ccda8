#include "fork/multicast/meeting.h"

#include <poll.h>

#include <algorithm>
#include <variant>

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kHelloAgain = milliseconds(100);
/// Multicast reaches this host if one of the probes comes within this time.
constexpr auto kProbeTime = milliseconds(350);
constexpr int kReceivedAtOnce = 256;

}  // namespace

Status Meeting::meet() {
  STDCHK_TRY(wait_for_offer());
  if (!options_.by_unicast) try_group();
  return {};
}

Status Meeting::wait_for_offer() {
  const Time begun = clock_.now();
  Time asked{};
  while (offer_.units == 0) {
    if (clock_.now() - begun > options_.patience) {
      return fail(Code::kDeadline, "multicast.receive: no sender answers");
    }
    if (clock_.now() - asked > kHelloAgain) {
      asked = clock_.now();
      send(Hello{}, options_.from);
    }
    wait(clock_.now() + kHelloAgain);
    Address from;
    // A flood of datagrams does not keep this host from its deadline.
    for (int i = 0; i < kReceivedAtOnce && offer_.units == 0; ++i) {
      const auto length = socket_.receive(room_, from);
      if (!length) break;
      const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
      if (!opened) continue;
      const auto* offer = std::get_if<Offer>(&opened->message);
      if (offer != nullptr && offer->to == datagrams_.id()) {
        STDCHK_TRY(take_offer(*offer, opened->from));
      }
    }
  }
  return {};
}

Status Meeting::take_offer(const Offer& offer, std::uint64_t sender) {
  if (offer.image_bytes == 0 || offer.image_bytes / kUnitBytes >= kUnitsMax / 2 ||
      offer.cells == 0 || offer.cells > kCellsMax) {
    return fail(Code::kMalformed, "multicast.offer");
  }
  if (offer.image_bytes > options_.image_bytes_max) {
    return fail(Code::kTooLarge, "multicast.offer: the image is longer than this receiver takes");
  }
  manifest_.emplace(offer.image_bytes);
  if (offer.units != manifest_->all_units() || offer.position >= offer.units) {
    return fail(Code::kMalformed, "multicast.offer");
  }
  offer_ = offer;
  sender_ = sender;
  return {};
}

/// Without a probe, all comes by unicast.
void Meeting::try_group() {
  auto joined = Socket::join({offer_.group, offer_.port}, options_.own);
  if (!joined) return;
  group_.emplace(std::move(*joined));
  const Time begun = clock_.now();
  while (by_unicast_ && clock_.now() - begun < kProbeTime) {
    wait(begun + kProbeTime);
    Address from;
    for (int i = 0; i < kReceivedAtOnce && by_unicast_; ++i) {
      const auto length = group_->receive(room_, from);
      if (!length) break;
      const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
      if (opened && opened->from == sender_) by_unicast_ = false;
    }
  }
  if (by_unicast_) group_.reset();
}

void Meeting::send(const Message& message, const Address& to) {
  static_cast<void>(socket_.send(datagrams_.seal(message), to));
}

Status Meeting::receive(const Take& take) {
  for (Socket* socket : {group_ ? &*group_ : nullptr, &socket_}) {
    Address from;
    for (int i = 0; socket != nullptr && i < kReceivedAtOnce; ++i) {
      const auto length = socket->receive(room_, from);
      if (!length) break;
      const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
      if (opened) STDCHK_TRY(take(*opened, from, *length));
    }
  }
  return {};
}

void Meeting::wait(Time until, int wake) {
  const Duration left = std::clamp<Duration>(until - clock_.now(), Duration{}, milliseconds(100));
  const timespec time{0, static_cast<long>(left.count())};
  std::array<pollfd, 3> ready{
      {{socket_.fd(), POLLIN, 0}, {group_ ? group_->fd() : -1, POLLIN, 0}, {wake, POLLIN, 0}}};
  ::ppoll(ready.data(), ready.size(), &time, nullptr);
}

}  // namespace stdchk::multicast
