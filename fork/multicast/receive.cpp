#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "fork/multicast/cast.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/serving.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kHelloAgain = milliseconds(100);
/// Multicast reaches this host if one of the probes comes within this time.
constexpr auto kProbeTime = milliseconds(350);
/// A host that multicast does not reach waits so long for the name of its relay.
constexpr auto kPlaceTime = milliseconds(500);
constexpr int kJoinsMax = 50;
/// A relay that says nothing for this time is lost.
constexpr auto kRelaySilence = milliseconds(1500);
/// The sender hears of a receiver that a relay serves.
constexpr auto kReport = milliseconds(500);
constexpr auto kFarewell = milliseconds(200);
constexpr auto kFarewellAgain = milliseconds(50);
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
    make_receiver();
    const Time begun = clock_.now();
    heard_ = begun;
    while (by_unicast_ && !joining_.placed && clock_.now() - begun < kPlaceTime) {
      STDCHK_TRY(turn(clock_.now() + kHelloAgain));
    }
    while (!receiver_->done()) {
      if (clock_.now() - heard_ > options_.patience) {
        return fail(Code::kDeadline, "multicast.receive: the sender is silent");
      }
      ask();
      STDCHK_TRY(turn(receiver_->wake_at()));
    }
    finish(clock_.now() - begun);
    ReceiveReport report{receiver_->counts(), offer_.image_bytes, by_unicast_};
    report.by_relay = server_.id != sender_;
    if (relay_) report.relayed_cells = relay_->sender().counts().unicast_cells;
    return report;
  }

 private:
  /// A Server answers the asks: the sender, or a relay.
  struct Server {
    std::uint64_t id = 0;
    Address address;
    Time heard{};
  };
  struct Joining {
    bool placed = false;
    std::uint64_t avoid = 0;  ///< the relay that is lost
    int sent = 0;             ///< since it was lost
    Time sent_at{};
  };

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
    server_ = {sender, options_.from, clock_.now()};
    return {};
  }

  /// Joins the group, and waits for a probe. Without one all comes by unicast.
  Status try_group() {
    by_unicast_ = true;
    if (options_.by_unicast) return {};
    const Address group{offer_.group, offer_.port};
    auto joined = Socket::join(group, options_.own);
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

  void make_receiver() {
    ReceiverOptions wanted;
    wanted.units = offer_.units;
    wanted.cells = offer_.cells;
    wanted.begin = std::max(offer_.position, manifest_->own_units());
    wanted.in_front = manifest_->own_units();
    wanted.by_unicast = by_unicast_;
    receiver_.emplace(wanted);
    if (!options_.read) return;
    Serving::Options serving;
    serving.sender.units = offer_.units;
    serving.sender.cells = offer_.cells;
    serving.sender.holds_all = false;
    serving.read = [this](std::uint32_t unit, MutableByteSpan out) {
      return read_unit(*manifest_, options_.read, unit, out);
    };
    relay_.emplace(std::move(serving), socket_, datagrams_);
  }

  void send_ask(const Server& to, const Ask& ask) {
    static_cast<void>(socket_.send(datagrams_.seal(AskMessage{to.id, ask}), to.address));
  }

  void ask() {
    while (const auto ask = receiver_->next(clock_.now())) send_ask(server_, *ask);
  }

  /// Does everything but asking: takes what has come, passes on what others need, and waits until
  /// `wake_at` at most.
  Status turn(Time wake_at) {
    const Time now = clock_.now();
    if (!receiver_->done()) {
      join(now);
      report(now);
    }
    STDCHK_TRY(receive_datagrams());
    if (relay_ && relay_->peers() > 0) {
      STDCHK_TRY(relay_->speak(clock_));
      relay_->probe_each(now);
      wake_at = std::min(wake_at, relay_->sender().wake_at());
    }
    wait(wake_at);
    return {};
  }

  /// Asks the sender for a place in the tree until the answer comes, and again when the relay is
  /// lost. Without an answer the sender itself is asked for units.
  void join(Time now) {
    if (server_.id != sender_ && joining_.placed && now - server_.heard > kRelaySilence) {
      joining_ = {false, server_.id, 0, Time{}};
    }
    if (joining_.placed || now - joining_.sent_at < kHelloAgain) return;
    if (joining_.sent == kJoinsMax) {
      joining_.placed = true;
      server_ = {sender_, options_.from, now};
      return;
    }
    ++joining_.sent;
    joining_.sent_at = now;
    const Join join{sender_, joining_.avoid, by_unicast_, relay_.has_value()};
    static_cast<void>(socket_.send(datagrams_.seal(join), options_.from));
  }

  void take(const Place& place) {
    const bool is_late = place.relay != 0 && place.relay == joining_.avoid;
    if (place.to != datagrams_.id() || joining_.placed || is_late) return;
    joining_.placed = true;
    const Time now = clock_.now();
    server_ = place.relay == 0 ? Server{sender_, options_.from, now}
                               : Server{place.relay, {place.host, place.port}, now};
  }

  /// Tells the sender that this receiver is there, while a relay serves it.
  void report(Time now) {
    if (server_.id == sender_ || now - reported_ < kReport) return;
    reported_ = now;
    Ask ask;
    ask.by_unicast = true;
    send_ask({sender_, options_.from, {}}, ask);
  }

  /// Serves the receivers that need this relay, for as long as `took` and the patience at most.
  /// Says that this receiver needs nothing, more than once: datagrams are lost.
  void finish(Duration took) {
    const Time begun = clock_.now();
    Ask done;
    done.done = done.by_unicast = true;
    Time said{};
    for (Time now = begun;
         now - begun < kFarewell || (is_needed(now) && now - begun < took + options_.patience);
         now = clock_.now()) {
      const Duration pause = now - begun < kFarewell ? kFarewellAgain : kReport;
      if (now - said >= pause) {
        said = now;
        send_ask({sender_, options_.from, {}}, done);
        if (server_.id != sender_) send_ask(server_, done);
      }
      // An error of relaying does not matter: the image is complete here.
      if (!turn(now + kFarewellAgain)) return;
    }
  }

  bool is_needed(Time now) {
    return relay_ && relay_->sender().receivers() > 0 && !relay_->sender().all_done(now);
  }

  Status receive_datagrams() {
    for (Socket* socket : {group_ ? &*group_ : nullptr, &socket_}) {
      Address from;
      for (int i = 0; socket != nullptr && i < kReceivedAtOnce; ++i) {
        const auto length = socket->receive(room_, from);
        if (!length) break;
        if (options_.lose_permille > 0 && prng_.chance(options_.lose_permille, 1000)) continue;
        const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
        if (opened) STDCHK_TRY(take(*opened, from, *length));
      }
    }
    return {};
  }

  Status take(const Opened& opened, const Address& from, std::size_t datagram_bytes) {
    const Time now = clock_.now();
    if (const auto* asked = std::get_if<AskMessage>(&opened.message)) {
      if (relay_) relay_->take(now, opened, *asked, from);
      return {};
    }
    const bool is_server = opened.from == server_.id;
    if (!is_server && opened.from != sender_) return {};
    // A recorded datagram, sent again, does not show that the sender lives.
    if (opened.number > newest_[opened.from]) {
      newest_[opened.from] = opened.number;
      heard_ = now;
      if (is_server) server_.heard = now;
    }
    const auto* place = std::get_if<Place>(&opened.message);
    if (place != nullptr && opened.from == sender_) take(*place);
    const auto* cell = std::get_if<Cell>(&opened.message);
    return cell != nullptr ? take(*cell, datagram_bytes) : Status();
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
    if (relay_) relay_->sender().have(unit);
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
    STDCHK_TRY(options_.write(std::uint64_t{image_unit} * kUnitBytes, used));
    if (relay_) relay_->sender().have(unit);
    return {};
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
  /// The highest number of the datagrams of the sender and of each relay that has served this host.
  std::map<std::uint64_t, std::uint64_t> newest_;
  Offer offer_;
  std::optional<Manifest> manifest_;
  bool by_unicast_ = false;
  std::optional<Receiver> receiver_;
  std::optional<Serving> relay_;
  Server server_;
  Joining joining_;
  Time reported_{};
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
