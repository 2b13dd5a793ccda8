#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/base/log.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/meeting.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/serving.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kJoinAgain = milliseconds(100);
/// A host that multicast does not reach waits so long for the name of its relay.
constexpr auto kPlaceTime = milliseconds(500);
constexpr int kJoinsMax = 50;
/// A relay that says nothing for this time is lost.
constexpr auto kRelaySilence = milliseconds(1500);
/// A relay is lost, too, when no unit has become complete for this time, whatever it says.
constexpr auto kRelayIdle = 3 * kRelaySilence;
/// The sender hears of a receiver that a relay serves.
constexpr auto kReport = milliseconds(500);
constexpr auto kFarewell = milliseconds(200);
constexpr auto kFarewellAgain = milliseconds(50);

/// A Receiving is one call of receive().
class Receiving {
 public:
  Receiving(const ReceiveOptions& options, Socket socket, Clock& clock)
      : options_(options),
        clock_(clock),
        meeting_(options, std::move(socket), clock),
        prng_(meeting_.datagrams().id()) {}

  Result<ReceiveReport> run() {
    STDCHK_TRY(meeting_.meet());
    const Time begun = clock_.now();
    server_ = {meeting_.sender(), options_.from, begun, begun};
    make_receiver();
    moved_ = begun;
    while (meeting_.by_unicast() && !joining_.placed && clock_.now() - begun < kPlaceTime) {
      STDCHK_TRY(turn(clock_.now() + kJoinAgain));
    }
    while (!receiver_->done()) {
      if (clock_.now() - moved_ > options_.patience) {
        return fail(Code::kDeadline, "multicast.receive: the sender is silent");
      }
      ask();
      STDCHK_TRY(turn(receiver_->wake_at()));
    }
    finish(clock_.now() - begun);
    ReceiveReport report{receiver_->counts(), meeting_.offer().image_bytes, meeting_.by_unicast()};
    report.by_relay = server_.id != meeting_.sender();
    report.relayed_cells = relay_ ? relay_->sender().counts().unicast_cells : relayed_cells_;
    return report;
  }

 private:
  /// A Server answers the asks: the sender, or a relay.
  struct Server {
    std::uint64_t id = 0;
    Address address;
    Time heard{};
    Time progress{};  ///< it began to serve, or a unit became complete
  };
  struct Joining {
    bool placed = false;
    std::uint64_t avoid = 0;  ///< the relay that is lost
    int sent = 0;             ///< since it was lost
    Time sent_at{};
  };

  void make_receiver() {
    const Offer& offer = meeting_.offer();
    ReceiverOptions wanted;
    wanted.units = offer.units;
    wanted.cells = offer.cells;
    wanted.in_front = meeting_.manifest().own_units();
    wanted.begin = std::max(offer.position, wanted.in_front);
    wanted.by_unicast = meeting_.by_unicast();
    receiver_.emplace(wanted);
    if (!options_.read) return;
    Serving::Options serving;
    serving.sender.units = offer.units;
    serving.sender.cells = offer.cells;
    serving.sender.holds_all = false;
    serving.read = [this](std::uint32_t unit, MutableByteSpan out) {
      return read_unit(meeting_.manifest(), options_.read, unit, out);
    };
    relay_.emplace(std::move(serving), meeting_.socket(), meeting_.datagrams());
  }

  void send_ask(const Server& to, const Ask& ask) {
    meeting_.send(AskMessage{to.id, ask}, to.address);
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
    STDCHK_TRY(meeting_.receive([this](const Opened& opened, const Address& from,
                                       std::size_t bytes) {
      const bool lost = options_.lose_permille > 0 && prng_.chance(options_.lose_permille, 1000);
      return lost ? Status() : take(opened, from, bytes);
    }));
    if (relay_ && relay_->peers() > 0) {
      relay_->probe_each(now);
      // An error of relaying does not end this host's own receiving.
      if (const Status spoken = relay_->speak(clock_); !spoken) {
        log::warning("This host passes nothing on any more: {}", describe(spoken.error()));
        relayed_cells_ = relay_->sender().counts().unicast_cells;
        relay_.reset();
      } else {
        wake_at = std::min(wake_at, relay_->sender().wake_at());
      }
    }
    meeting_.wait(wake_at);
    return {};
  }

  /// Asks the sender for a place in the tree until the answer comes, and again when the relay is
  /// lost. Without an answer the sender itself is asked for units.
  void join(Time now) {
    const bool is_lost = now - server_.heard > kRelaySilence || now - server_.progress > kRelayIdle;
    if (server_.id != meeting_.sender() && joining_.placed && is_lost) {
      joining_ = {false, server_.id, 0, Time{}};
    }
    if (joining_.placed || now - joining_.sent_at < kJoinAgain) return;
    if (joining_.sent == kJoinsMax) {
      joining_.placed = true;
      server_ = {meeting_.sender(), options_.from, now, now};
      return;
    }
    ++joining_.sent;
    joining_.sent_at = now;
    meeting_.send(
        Join{meeting_.sender(), joining_.avoid, meeting_.by_unicast(), relay_.has_value()},
        options_.from);
  }

  void take(const Place& place) {
    const bool is_late = place.relay != 0 && place.relay == joining_.avoid;
    if (place.to != meeting_.datagrams().id() || joining_.placed || is_late) return;
    joining_.placed = true;
    const Time now = clock_.now();
    moved_ = now;
    server_ = place.relay == 0 ? Server{meeting_.sender(), options_.from, now, now}
                               : Server{place.relay, {place.host, place.port}, now, now};
  }

  /// Tells the sender that this receiver is there, while a relay serves it.
  void report(Time now) {
    if (server_.id == meeting_.sender() || now - reported_ < kReport) return;
    reported_ = now;
    Ask ask;
    ask.by_unicast = true;
    send_ask({meeting_.sender(), options_.from, {}, {}}, ask);
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
        send_ask({meeting_.sender(), options_.from, {}, {}}, done);
        if (server_.id != meeting_.sender()) send_ask(server_, done);
      }
      // An error of relaying does not matter: the image is complete here.
      if (!turn(now + kFarewellAgain)) return;
    }
  }

  bool is_needed(Time now) {
    return relay_ && relay_->sender().receivers() > 0 && !relay_->sender().all_done(now);
  }

  Status take(const Opened& opened, const Address& from, std::size_t datagram_bytes) {
    const Time now = clock_.now();
    if (const auto* asked = std::get_if<AskMessage>(&opened.message)) {
      if (relay_) relay_->take(now, opened, *asked, from);
      return {};
    }
    const bool is_server = opened.from == server_.id;
    if (!is_server && opened.from != meeting_.sender()) return {};
    // A recorded datagram, sent again, does not show that the server lives.
    if (opened.number > newest_[opened.from]) {
      newest_[opened.from] = opened.number;
      if (is_server) server_.heard = now;
    }
    const auto* place = std::get_if<Place>(&opened.message);
    if (place != nullptr && opened.from == meeting_.sender()) take(*place);
    const auto* cell = std::get_if<Cell>(&opened.message);
    return cell != nullptr ? take(*cell, datagram_bytes) : Status();
  }

  Status take(const Cell& cell, std::size_t datagram_bytes) {
    const std::uint32_t cells = meeting_.offer().cells;
    const std::size_t cell_bytes = (kUnitBytes + cells - 1) / cells;
    const std::size_t from = cell.cell * cell_bytes;
    // Before the manifest is proven, the receiver needs no cell of the image.
    if (!receiver_->needs(cell.unit, cell.cell)) {
      receiver_->on_cell(clock_.now(), cell.unit, cell.cell, datagram_bytes);
      return {};
    }
    if (cell.bytes.size() != std::min(cell_bytes, kUnitBytes - from)) return {};
    moved_ = clock_.now();
    auto& unit = assembly_[cell.unit];
    if (unit.empty()) unit.resize(kUnitBytes);
    std::memcpy(unit.data() + from, cell.bytes.data(), cell.bytes.size());
    if (!receiver_->on_cell(clock_.now(), cell.unit, cell.cell, datagram_bytes)) return {};
    const std::vector<std::byte> whole = std::move(unit);
    assembly_.erase(cell.unit);
    return cell.unit < meeting_.manifest().own_units() ? take_manifest(cell.unit, whole)
                                                       : take_unit(cell.unit, whole);
  }

  Status take_manifest(std::uint32_t unit, ByteSpan bytes) {
    Manifest& manifest = meeting_.manifest();
    manifest.set_own_unit(unit, bytes);
    if (receiver_->accepted() + 1 == manifest.own_units()) {
      if (manifest.root() != options_.root) {
        return fail(Code::kCorrupt, "multicast.receive: the manifest has another root");
      }
      STDCHK_TRY(options_.begin(manifest.image_bytes()));
    }
    receiver_->accept(unit);
    server_.progress = moved_;
    if (relay_) relay_->sender().have(unit);
    return {};
  }

  Status take_unit(std::uint32_t unit, ByteSpan bytes) {
    const Manifest& manifest = meeting_.manifest();
    const std::uint32_t image_unit = unit - manifest.own_units();
    const ByteSpan used = bytes.first(manifest.unit_bytes(image_unit));
    if (!manifest.matches(image_unit, used)) {
      receiver_->reject(unit);
      return {};
    }
    receiver_->accept(unit);
    server_.progress = moved_;
    STDCHK_TRY(options_.write(std::uint64_t{image_unit} * kUnitBytes, used));
    if (relay_) relay_->sender().have(unit);
    return {};
  }

  const ReceiveOptions& options_;
  Clock& clock_;
  Meeting meeting_;
  Prng prng_;
  /// The highest number of the datagrams of the sender and of each relay that has served this host.
  std::map<std::uint64_t, std::uint64_t> newest_;
  std::optional<Receiver> receiver_;
  std::optional<Serving> relay_;     ///< nothing: this host does not pass units on
  std::uint64_t relayed_cells_ = 0;  ///< by a relay_ that has ended
  Server server_;
  Joining joining_;
  Time reported_{};
  /// The bytes of incomplete units; the Receiver limits the number of these units.
  std::unordered_map<std::uint32_t, std::vector<std::byte>> assembly_;
  Time moved_{};  ///< a cell that was needed came, or the sender named another server
};

}  // namespace

Result<ReceiveReport> receive(const ReceiveOptions& options, Clock& clock) {
  STDCHK_ASSIGN(Socket socket, Socket::open(options.own, 1));
  return Receiving(options, std::move(socket), clock).run();
}

}  // namespace stdchk::multicast
