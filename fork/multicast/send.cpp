#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "core/base/log.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/messages.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kProbe = milliseconds(100);
/// A message of a cell beside its bytes: header, kind, unit, cell, tag.
constexpr std::size_t kCellOverhead = kHeaderBytes + 1 + 8 + Sealer::kTagBytes;
constexpr int kReceivedAtOnce = 256;
constexpr int kSentAtOnce = 64;

/// A Sending is one call of send().
class Sending {
 public:
  Sending(const SendOptions& options, const Manifest& manifest, Socket socket, std::uint32_t cells,
          Clock& clock)
      : options_(options),
        manifest_(manifest),
        clock_(clock),
        socket_(std::move(socket)),
        datagrams_(options.group),
        cells_(cells),
        cell_bytes_((kUnitBytes + cells - 1) / cells),
        sender_(sender_options()) {}

  Status run() {
    Time idle_since = clock_.now();
    while (clock_.now() - idle_since < options_.idle) {
      receive_datagrams();
      STDCHK_TRY(speak());
      probe();
      if (!sender_.all_done(clock_.now()) && sender_.receivers() > 0) idle_since = clock_.now();
      if (sender_.all_done(clock_.now()) && sender_.receivers() > 0) {
        if (done_at_ < idle_since) done_at_ = clock_.now();
        // All have everything. Late ones have a second to come.
        if (clock_.now() - idle_since > std::chrono::seconds(1)) return {};
      }
      wait();
    }
    return {};
  }
  SendReport report() const { return {sender_.counts(), done_at_ - begun_at_}; }

 private:
  struct Peer {
    Address address;
    std::uint64_t number = 0;  ///< of its last ask
  };

  SenderOptions sender_options() const {
    SenderOptions out;
    out.units = manifest_.all_units();
    out.cells = cells_;
    out.rate_start = options_.rate_start;
    out.rate_most = options_.rate_most;
    return out;
  }

  void receive_datagrams() {
    std::array<std::byte, kDatagramBytesMax> room;
    Address from;
    for (int i = 0; i < kReceivedAtOnce; ++i) {
      const auto length = socket_.receive(room, from);
      if (!length) return;
      const auto opened = datagrams_.open(ByteSpan(room).first(*length));
      if (!opened) continue;  // of a stranger
      if (std::holds_alternative<Hello>(opened->message)) answer(opened->from, from);
      if (const auto* asked = std::get_if<AskMessage>(&opened->message)) {
        take(*opened, *asked, from);
      }
    }
  }

  void answer(std::uint64_t id, const Address& from) {
    Offer offer;
    offer.to = id;
    offer.image_bytes = manifest_.image_bytes();
    offer.units = manifest_.all_units();
    offer.cells = cells_;
    offer.position = sender_.position();
    offer.group = options_.to.host;
    offer.port = options_.to.port;
    static_cast<void>(socket_.send(datagrams_.seal(offer), from));
  }

  void take(const Opened& opened, const AskMessage& asked, const Address& from) {
    // A recorded ask is for another sender, or has an old number.
    if (asked.to != datagrams_.id()) return;
    if (peers_.count(opened.from) == 0 && peers_.size() >= Sender::kReceiversMax) return;
    Peer& peer = peers_[opened.from];
    if (opened.number <= peer.number) return;
    peer = {from, opened.number};
    sender_.on_ask(clock_.now(), opened.from, asked.ask);
  }

  /// False while receivers that are expected have not come.
  bool may_begin() {
    if (begun_ || peers_.empty()) return begun_;
    if (first_ask_ == Time{}) first_ask_ = clock_.now();
    begun_ = peers_.size() >= options_.expected || clock_.now() - first_ask_ > kGatherTime;
    begun_at_ = clock_.now();
    return begun_;
  }

  Status speak() {
    if (!may_begin()) return {};
    for (int i = 0; i < kSentAtOnce; ++i) {
      const auto next = sender_.next(clock_.now(), cell_bytes_ + kCellOverhead);
      if (!next) return {};
      STDCHK_ASSIGN(const ByteSpan bytes, bytes_of(next->unit, next->cell));
      Address to = options_.to;
      if (next->to != 0) {
        const auto peer = peers_.find(next->to);
        if (peer == peers_.end()) continue;
        to = peer->second.address;
      }
      const Status sent = socket_.send(datagrams_.seal(Cell{next->unit, next->cell, bytes}), to);
      // A full queue of the host is loss as any other: receivers ask again.
      if (!sent && sent.error().code != Code::kWouldBlock && next->to == 0 && !said_) {
        log::warning("The group {} cannot be reached: {}", address_text(to),
                     describe(sent.error()));
        said_ = true;
      }
    }
    return {};
  }

  /// The bytes of a cell. The last unit is filled up with zeros.
  Result<ByteSpan> bytes_of(std::uint32_t unit, std::uint32_t cell) {
    if (unit != unit_ || unit_bytes_.empty()) {
      unit_bytes_.assign(kUnitBytes, std::byte{});
      const std::uint32_t own = manifest_.own_units();
      if (unit < own) {
        manifest_.copy_own_unit(unit, unit_bytes_);
      } else {
        STDCHK_TRY(
            options_.read(std::uint64_t{unit - own} * kUnitBytes,
                          MutableByteSpan(unit_bytes_).first(manifest_.unit_bytes(unit - own))));
      }
      unit_ = unit;
    }
    const std::size_t from = cell * cell_bytes_;
    return ByteSpan(unit_bytes_).subspan(from, std::min(cell_bytes_, kUnitBytes - from));
  }

  void probe() {
    if (clock_.now() - probed_ < kProbe) return;
    probed_ = clock_.now();
    static_cast<void>(socket_.send(datagrams_.seal(Probe{}), options_.to));
  }

  void wait() {
    const Duration left =
        std::clamp<Duration>(sender_.wake_at() - clock_.now(), Duration{}, milliseconds(10));
    const timespec time{0, static_cast<long>(left.count())};
    pollfd ready{socket_.fd(), POLLIN, 0};
    ::ppoll(&ready, 1, &time, nullptr);
  }

  const SendOptions& options_;
  const Manifest& manifest_;
  Clock& clock_;
  Socket socket_;
  Datagrams datagrams_;
  const std::uint32_t cells_;
  const std::size_t cell_bytes_;
  Sender sender_;
  std::map<std::uint64_t, Peer> peers_;
  std::vector<std::byte> unit_bytes_;
  std::uint32_t unit_ = 0;
  Time probed_{};
  Time first_ask_{};
  Time begun_at_{};
  Time done_at_{};
  bool begun_ = false;
  bool said_ = false;
};

}  // namespace

Secret group_secret(const Secret& from) { return derive(from, "stdchk.multicast.group", {}); }

std::uint32_t cells_for(std::size_t datagram_bytes) {
  for (std::uint32_t cells = 1; cells < kCellsMax; ++cells) {
    if ((kUnitBytes + cells - 1) / cells + kCellOverhead <= datagram_bytes) return cells;
  }
  return kCellsMax;
}

Result<SendReport> send(const SendOptions& options, const Manifest& manifest, Clock& clock) {
  if (!is_multicast(options.to)) return fail(Code::kInvalidArgument, "multicast.send: not a group");
  STDCHK_ASSIGN(Socket socket, Socket::open(options.own, options.hops));
  STDCHK_ASSIGN(const Address own, socket.own());
  const std::uint32_t cells = cells_for(datagram_bytes_of(options.own));
  Sending sending(options, manifest, std::move(socket), cells, clock);
  if (options.on_ready) options.on_ready(own);
  STDCHK_TRY(sending.run());
  return sending.report();
}

}  // namespace stdchk::multicast
