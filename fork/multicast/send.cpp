#include <poll.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "fork/multicast/cast.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/relay_tree.h"
#include "fork/multicast/serving.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

constexpr auto kProbe = milliseconds(100);
constexpr int kReceivedAtOnce = 256;

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
        serving_(serving_options(), socket_, datagrams_) {}

  Status run() {
    Time idle_since = clock_.now();
    while (clock_.now() - idle_since < options_.idle) {
      receive_datagrams();
      if (may_begin()) STDCHK_TRY(serving_.speak(clock_));
      probe();
      if ((options_.is_over && options_.is_over()) || has_only_laggards()) return {};
      Sender& sender = serving_.sender();
      if (!sender.all_done(clock_.now()) && sender.receivers() > 0) idle_since = clock_.now();
      if (sender.all_done(clock_.now()) && sender.receivers() > 0 && have_come()) {
        if (done_at_ < idle_since) done_at_ = clock_.now();
        // All have everything. Late ones have a second to come.
        if (clock_.now() - idle_since > std::chrono::seconds(1)) return {};
      }
      wait();
    }
    return {};
  }
  SendReport report() {
    return {serving_.sender().counts(), complete_.size(),
            std::max(done_at_, begun_at_) - begun_at_};
  }

 private:
  /// A Member is a receiver in the RelayTree.
  struct Member {
    Address address;
    std::uint64_t number = 0;  ///< of its last Join
    Time heard{};
  };

  Serving::Options serving_options() const {
    Serving::Options out;
    out.sender.units = manifest_.all_units();
    out.sender.cells = cells_;
    out.sender.rate_start = options_.rate_start;
    out.sender.rate_most = options_.rate_most;
    out.group = options_.to;
    out.read = [this](std::uint32_t unit, MutableByteSpan unit_bytes) {
      return read_unit(manifest_, options_.read, unit, unit_bytes);
    };
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
      if (const auto* join = std::get_if<Join>(&opened->message)) place(*opened, *join, from);
    }
  }

  void answer(std::uint64_t id, const Address& from) {
    Offer offer;
    offer.to = id;
    offer.image_bytes = manifest_.image_bytes();
    offer.units = manifest_.all_units();
    offer.cells = cells_;
    offer.position = serving_.sender().position();
    offer.group = options_.to.host;
    offer.port = options_.to.port;
    static_cast<void>(socket_.send(datagrams_.seal(offer), from));
  }

  void take(const Opened& opened, const AskMessage& asked, const Address& from) {
    const Time now = clock_.now();
    if (!serving_.take(now, opened, asked, from)) return;
    tree_.heard(now, opened.from, asked.ask.done || asked.ask.gone);
    if (asked.ask.done && complete_.size() < Sender::kReceiversMax) complete_.insert(opened.from);
  }

  void place(const Opened& opened, const Join& join, const Address& from) {
    if (join.to != datagrams_.id()) return;
    const Time now = clock_.now();
    if (members_.count(opened.from) == 0 && members_.size() >= RelayTree::kMembersMax &&
        !remove_oldest(members_, [&](ReceiverId id) { return tree_.hears(now, id); })) {
      return;
    }
    Member& member = members_[opened.from];
    if (opened.number <= member.number) return;
    member = {from, opened.number, now};
    const RelayTree::Kind kind{join.by_unicast, join.relays};
    Place answer;
    answer.to = opened.from;
    answer.relay = tree_.place(now, opened.from, kind, join.avoid);
    if (answer.relay != 0) {
      const Member& relay = members_.at(answer.relay);
      answer.host = relay.address.host;
      answer.port = relay.address.port;
    }
    static_cast<void>(socket_.send(datagrams_.seal(answer), from));
  }

  /// False while receivers that are expected have not come.
  bool may_begin() {
    if (begun_ || serving_.peers() == 0) return begun_;
    if (first_ask_ == Time{}) first_ask_ = clock_.now();
    begun_ = serving_.peers() >= options_.expected || clock_.now() - first_ask_ > kGatherTime;
    begun_at_ = clock_.now();
    return begun_;
  }

  /// Without is_over nobody knows whether receivers that are expected will come.
  bool have_come() const { return !options_.is_over || complete_.size() >= options_.expected; }

  /// Returns true when half of the receivers have been complete for so long that the others lag.
  bool has_only_laggards() {
    if (!options_.leaves_laggards || complete_.empty()) return false;
    const Time now = clock_.now();
    // Before all expected receivers have come, nobody knows how many are half.
    const std::size_t all = std::max<std::size_t>(serving_.sender().receivers(), options_.expected);
    if (half_at_ == Time{}) {
      if (complete_.size() * 2 < all) return false;
      half_at_ = now;
    }
    return now - half_at_ > std::max<Duration>(kLaggardsTime, half_at_ - begun_at_);
  }

  void probe() {
    if (clock_.now() - probed_ < kProbe) return;
    probed_ = clock_.now();
    static_cast<void>(socket_.send(datagrams_.seal(Probe{}), options_.to));
  }

  void wait() {
    const Duration left = std::clamp<Duration>(serving_.sender().wake_at() - clock_.now(),
                                               Duration{}, milliseconds(10));
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
  Serving serving_;
  RelayTree tree_;
  std::map<ReceiverId, Member> members_;
  Time probed_{};
  Time first_ask_{};
  Time begun_at_{};
  Time done_at_{};
  Time half_at_{};                 ///< half of the receivers were complete for the first time
  std::set<ReceiverId> complete_;  ///< at most Sender::kReceiversMax
  bool begun_ = false;
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
