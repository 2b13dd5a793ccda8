#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "fork/multicast/cast.h"
#include "fork/multicast/messages.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kHelloAgain = milliseconds(100);
/// Multicast reaches this host if one of the probes comes within this time.
constexpr auto kProbeTime = milliseconds(350);
constexpr auto kFarewell = milliseconds(200);
constexpr int kReceivedAtOnce = 256;

/// A Receiving is one call of receive().
class Receiving {
 public:
  Receiving(const ReceiveOptions& options, Socket socket, Clock& clock)
      : options_(options),
        clock_(clock),
        socket_(std::move(socket)),
        datagrams_(options.group),
        prng_(datagrams_.id()) {}

  Result<ReceiveReport> run() {
    STDCHK_TRY(wait_for_offer());
    STDCHK_TRY(try_group());
    ReceiverOptions wanted;
    wanted.units = offer_.units;
    wanted.cells = offer_.cells;
    wanted.begin = std::max(offer_.position, manifest_->own_units());
    wanted.in_front = manifest_->own_units();
    wanted.by_unicast = by_unicast_;
    receiver_.emplace(wanted);
    heard_ = clock_.now();
    while (!receiver_->done()) {
      if (clock_.now() - heard_ > options_.patience) {
        return fail(Code::kDeadline, "multicast.receive: the sender is silent");
      }
      ask();
      STDCHK_TRY(receive_datagrams());
      wait(receiver_->wake_at());
    }
    send_done();
    return ReceiveReport{receiver_->counts(), offer_.image_bytes, by_unicast_};
  }

 private:
  /// Asks for the offer until it comes.
  Status wait_for_offer() {
    const Time begun = clock_.now();
    Time asked{};
    while (offer_.units == 0) {
      if (clock_.now() - begun > options_.patience) {
        return fail(Code::kDeadline, "multicast.receive: no sender answers");
      }
      if (clock_.now() - asked > kHelloAgain) {
        asked = clock_.now();
        static_cast<void>(socket_.send(datagrams_.seal(Hello{}), options_.from));
      }
      wait(clock_.now() + kHelloAgain);
      Address from;
      while (const auto length = socket_.receive(room_, from)) {
        const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
        if (!opened) continue;
        const auto* offer = std::get_if<Offer>(&opened->message);
        if (offer != nullptr && offer->to == datagrams_.id())
          STDCHK_TRY(take(*offer, opened->from));
      }
    }
    return {};
  }

  Status take(const Offer& offer, std::uint64_t sender) {
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

  /// Joins the group, and waits for a probe. Without one all comes by unicast.
  Status try_group() {
    const Address group{offer_.group, offer_.port};
    auto joined = Socket::join(group, options_.own);
    by_unicast_ = true;
    if (!joined) return {};
    group_.emplace(std::move(*joined));
    const Time begun = clock_.now();
    while (by_unicast_ && clock_.now() - begun < kProbeTime) {
      wait(begun + kProbeTime);
      Address from;
      while (const auto length = group_->receive(room_, from)) {
        const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
        if (opened && opened->from == sender_) by_unicast_ = false;
      }
    }
    if (by_unicast_) group_.reset();
    return {};
  }

  void ask() {
    while (const auto ask = receiver_->next(clock_.now())) {
      static_cast<void>(socket_.send(datagrams_.seal(AskMessage{sender_, *ask}), options_.from));
    }
  }

  /// Tells the sender that this receiver needs nothing, more than once: datagrams are lost.
  void send_done() {
    const Time until = clock_.now() + kFarewell;
    Ask done;
    done.done = true;
    while (clock_.now() < until) {
      static_cast<void>(socket_.send(datagrams_.seal(AskMessage{sender_, done}), options_.from));
      const timespec pause{0, 50'000'000};
      ::nanosleep(&pause, nullptr);
    }
  }

  Status receive_datagrams() {
    for (Socket* socket : {group_ ? &*group_ : nullptr, &socket_}) {
      Address from;
      for (int i = 0; socket != nullptr && i < kReceivedAtOnce; ++i) {
        const auto length = socket->receive(room_, from);
        if (!length) break;
        if (options_.lose_permille > 0 && prng_.chance(options_.lose_permille, 1000)) continue;
        const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
        if (!opened || opened->from != sender_) continue;
        // A recorded datagram, sent again, does not show that the sender lives.
        if (opened->number > newest_) {
          newest_ = opened->number;
          heard_ = clock_.now();
        }
        if (const auto* cell = std::get_if<Cell>(&opened->message))
          STDCHK_TRY(take(*cell, *length));
      }
    }
    return {};
  }

  Status take(const Cell& cell, std::size_t datagram_bytes) {
    const std::size_t cell_bytes = (kUnitBytes + offer_.cells - 1) / offer_.cells;
    const std::size_t from = cell.cell * cell_bytes;
    // Before the manifest is proven, the receiver needs no cell of the image.
    if (!receiver_->needs(cell.unit, cell.cell)) {
      receiver_->on_cell(clock_.now(), cell.unit, cell.cell, datagram_bytes);
      return {};
    }
    if (cell.bytes.size() != std::min(cell_bytes, kUnitBytes - from)) return {};
    auto& unit = assembly_[cell.unit];
    if (unit.empty()) unit.resize(kUnitBytes);
    std::memcpy(unit.data() + from, cell.bytes.data(), cell.bytes.size());
    if (!receiver_->on_cell(clock_.now(), cell.unit, cell.cell, datagram_bytes)) return {};
    const std::vector<std::byte> whole = std::move(unit);
    assembly_.erase(cell.unit);
    return cell.unit < manifest_->own_units() ? take_manifest(cell.unit, whole)
                                              : take_unit(cell.unit, whole);
  }

  Status take_manifest(std::uint32_t unit, ByteSpan bytes) {
    manifest_->set_own_unit(unit, bytes);
    if (receiver_->accepted() + 1 == manifest_->own_units()) {
      if (manifest_->root() != options_.root) {
        return fail(Code::kCorrupt, "multicast.receive: the manifest has another root");
      }
      STDCHK_TRY(options_.begin(offer_.image_bytes));
    }
    receiver_->accept(unit);
    return {};
  }

  Status take_unit(std::uint32_t unit, ByteSpan bytes) {
    const std::uint32_t image_unit = unit - manifest_->own_units();
    const ByteSpan used = bytes.first(manifest_->unit_bytes(image_unit));
    if (!manifest_->matches(image_unit, used)) {
      receiver_->reject(unit);
      return {};
    }
    receiver_->accept(unit);
    return options_.write(std::uint64_t{image_unit} * kUnitBytes, used);
  }

  void wait(Time until) {
    const Duration left = std::clamp<Duration>(until - clock_.now(), Duration{}, milliseconds(100));
    const timespec time{0, static_cast<long>(left.count())};
    std::array<pollfd, 2> ready{
        {{socket_.fd(), POLLIN, 0}, {group_ ? group_->fd() : -1, POLLIN, 0}}};
    ::ppoll(ready.data(), ready.size(), &time, nullptr);
  }

  const ReceiveOptions& options_;
  Clock& clock_;
  Socket socket_;
  std::optional<Socket> group_;
  Datagrams datagrams_;
  Prng prng_;
  std::uint64_t sender_ = 0;
  std::uint64_t newest_ = 0;  ///< the highest number of the sender's datagrams
  Offer offer_;
  std::optional<Manifest> manifest_;
  bool by_unicast_ = false;
  std::optional<Receiver> receiver_;
  /// The bytes of incomplete units; the Receiver limits the number of these units.
  std::unordered_map<std::uint32_t, std::vector<std::byte>> assembly_;
  std::array<std::byte, kDatagramBytesMax> room_{};
  Time heard_{};
};

}  // namespace

Result<ReceiveReport> receive(const ReceiveOptions& options, Clock& clock) {
  STDCHK_ASSIGN(Socket socket, Socket::open(options.own, 1));
  return Receiving(options, std::move(socket), clock).run();
}

}  // namespace stdchk::multicast
