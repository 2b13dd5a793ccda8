#include "fork/multicast/serving.h"

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace stdchk::multicast {
namespace {

constexpr int kSentAtOnce = 64;
constexpr auto kProbeEach = std::chrono::milliseconds(200);

}  // namespace

Serving::Serving(Options options, Socket& socket, Datagrams& datagrams)
    : options_(std::move(options)),
      socket_(socket),
      datagrams_(datagrams),
      cell_bytes_((kUnitBytes + options_.sender.cells - 1) / options_.sender.cells),
      sender_(options_.sender) {}

bool Serving::take(Time now, const Opened& opened, const AskMessage& asked, const Address& from) {
  // A recorded ask is for another sender, or has an old number.
  if (asked.to != datagrams_.id()) return false;
  if (peers_.count(opened.from) == 0 && peers_.size() >= Sender::kReceiversMax &&
      !remove_oldest(peers_, [&](ReceiverId id) { return sender_.hears(now, id); })) {
    return false;
  }
  Peer& peer = peers_[opened.from];
  if (opened.number <= peer.number) return false;
  peer = {from, opened.number, now, peer.warned};
  return sender_.on_ask(now, opened.from, asked.ask);
}

Status Serving::speak(Clock& clock) {
  for (int i = 0; i < kSentAtOnce; ++i) {
    const auto next = sender_.next(clock.now(), cell_bytes_ + kCellOverhead);
    if (!next) return {};
    Address to = options_.group.value_or(Address{});
    bool* warned = &warned_;
    if (next->to != 0) {
      const auto peer = peers_.find(next->to);
      if (peer == peers_.end()) continue;
      to = peer->second.address;
      warned = &peer->second.warned;
    }
    STDCHK_ASSIGN(const ByteSpan bytes, bytes_of(next->unit, next->cell));
    const Status sent = socket_.send(datagrams_.seal(Cell{next->unit, next->cell, bytes}), to);
    // A full queue of the host is loss as any other: receivers ask again.
    if (!sent && sent.error().code != Code::kWouldBlock && !*warned) {
      log::warning("The {} {} cannot be reached: {}", next->to == 0 ? "group" : "receiver",
                   address_text(to), describe(sent.error()));
      *warned = true;
    }
  }
  return {};
}

void Serving::probe_each(Time now) {
  if (now - probed_ < kProbeEach) return;
  probed_ = now;
  for (const auto& [id, peer] : peers_) {
    static_cast<void>(socket_.send(datagrams_.seal(Probe{}), peer.address));
  }
}

/// The bytes of a cell. The result is valid until the next call.
Result<ByteSpan> Serving::bytes_of(std::uint32_t unit, std::uint32_t cell) {
  if (unit != unit_ || unit_bytes_.empty()) {
    unit_bytes_.resize(kUnitBytes);
    unit_ = unit;
    if (const Status status = options_.read(unit, unit_bytes_); !status) {
      unit_bytes_.clear();
      return fail(status.error());
    }
  }
  const std::size_t from = cell * cell_bytes_;
  return ByteSpan(unit_bytes_).subspan(from, std::min(cell_bytes_, kUnitBytes - from));
}

Status read_unit(const Manifest& manifest,
                 const std::function<Status(std::uint64_t offset, MutableByteSpan out)>& read,
                 std::uint32_t unit, MutableByteSpan out) {
  const std::uint32_t own = manifest.own_units();
  if (unit < own) {
    manifest.copy_own_unit(unit, out);
    return {};
  }
  const std::size_t bytes = manifest.unit_bytes(unit - own);
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(bytes), out.end(), std::byte{});
  return read(std::uint64_t{unit - own} * kUnitBytes, out.first(bytes));
}

}  // namespace stdchk::multicast
