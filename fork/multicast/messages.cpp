#include "fork/multicast/messages.h"

#include <algorithm>
#include <cstring>

namespace stdchk::multicast {
namespace {

constexpr std::array<std::byte, 4> kMagic{std::byte{'S'}, std::byte{'D'}, std::byte{'M'},
                                          std::byte{'1'}};
enum class Kind : std::uint8_t {
  kHello = 1,
  kOffer = 2,
  kProbe = 3,
  kAsk = 4,
  kCell = 5,
  kJoin = 6,
  kPlace = 7,
};

/// A Writer appends integers, the low byte first.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>& out) : out_(out) {}
  template <class T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
  }
  void put_bytes(ByteSpan bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

 private:
  std::vector<std::byte>& out_;
};

/// A Cursor reads them. After a read behind the end, good() is false.
class Cursor {
 public:
  explicit Cursor(ByteSpan bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    std::uint64_t value = 0;
    if (bytes_.size() < sizeof(T)) {
      good_ = false;
      return T{};
    }
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
    }
    bytes_ = bytes_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  ByteSpan rest() const { return bytes_; }
  bool good() const { return good_; }
  bool ended() const { return good_ && bytes_.empty(); }

 private:
  ByteSpan bytes_;
  bool good_ = true;
};

void put_at(MutableByteSpan out, std::size_t offset, std::uint64_t value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    out[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

void write(Writer& out, const Hello&) { out.put(Kind::kHello); }
void write(Writer& out, const Probe&) { out.put(Kind::kProbe); }
void write(Writer& out, const Offer& offer) {
  out.put(Kind::kOffer);
  out.put(offer.to);
  out.put(offer.image_bytes);
  out.put(offer.units);
  out.put(offer.cells);
  out.put(offer.position);
  out.put(offer.group);
  out.put(offer.port);
}
void write(Writer& out, const AskMessage& message) {
  const Ask& ask = message.ask;
  out.put(Kind::kAsk);
  out.put(message.to);
  out.put(ask.rate_kib);
  out.put(ask.delay_us);
  out.put(ask.lost_cells);
  out.put(static_cast<std::uint8_t>((ask.by_unicast ? 1U : 0U) | (ask.done ? 2U : 0U) |
                                    (ask.gone ? 4U : 0U)));
  out.put(static_cast<std::uint8_t>(ask.wants.size()));
  for (const Want& want : ask.wants) {
    out.put(want.first);
    out.put(want.count);
    out.put(want.cells);
  }
}
void write(Writer& out, const Cell& cell) {
  out.put(Kind::kCell);
  out.put(cell.unit);
  out.put(cell.cell);
  out.put_bytes(cell.bytes);
}
void write(Writer& out, const Join& join) {
  out.put(Kind::kJoin);
  out.put(join.to);
  out.put(join.avoid);
  out.put(static_cast<std::uint8_t>((join.by_unicast ? 1U : 0U) | (join.relays ? 2U : 0U)));
}
void write(Writer& out, const Place& place) {
  out.put(Kind::kPlace);
  out.put(place.to);
  out.put(place.relay);
  out.put(place.host);
  out.put(place.port);
}

std::optional<Message> read_offer(Cursor& in) {
  Offer offer;
  offer.to = in.take<std::uint64_t>();
  offer.image_bytes = in.take<std::uint64_t>();
  offer.units = in.take<std::uint32_t>();
  offer.cells = in.take<std::uint32_t>();
  offer.position = in.take<std::uint32_t>();
  offer.group = in.take<std::uint32_t>();
  offer.port = in.take<std::uint16_t>();
  if (!in.ended()) return std::nullopt;
  return offer;
}

std::optional<Message> read_ask(Cursor& in) {
  AskMessage message;
  message.to = in.take<std::uint64_t>();
  message.ask.rate_kib = in.take<std::uint32_t>();
  message.ask.delay_us = in.take<std::uint32_t>();
  message.ask.lost_cells = in.take<std::uint32_t>();
  const auto flags = in.take<std::uint8_t>();
  const auto count = in.take<std::uint8_t>();
  if (flags > 7 || count > Ask::kWantsMax) return std::nullopt;
  message.ask.by_unicast = (flags & 1U) != 0;
  message.ask.done = (flags & 2U) != 0;
  message.ask.gone = (flags & 4U) != 0;
  for (unsigned i = 0; i < count; ++i) {
    Want want;
    want.first = in.take<std::uint32_t>();
    want.count = in.take<std::uint16_t>();
    want.cells = in.take<CellMask>();
    message.ask.wants.push_back(want);
  }
  if (!in.ended()) return std::nullopt;
  return message;
}

std::optional<Message> read_join(Cursor& in) {
  Join join;
  join.to = in.take<std::uint64_t>();
  join.avoid = in.take<std::uint64_t>();
  const auto flags = in.take<std::uint8_t>();
  if (flags > 3 || !in.ended()) return std::nullopt;
  join.by_unicast = (flags & 1U) != 0;
  join.relays = (flags & 2U) != 0;
  return join;
}

std::optional<Message> read_place(Cursor& in) {
  Place place;
  place.to = in.take<std::uint64_t>();
  place.relay = in.take<std::uint64_t>();
  place.host = in.take<std::uint32_t>();
  place.port = in.take<std::uint16_t>();
  if (!in.ended()) return std::nullopt;
  return place;
}

std::optional<Message> read(ByteSpan plain) {
  Cursor in(plain);
  switch (static_cast<Kind>(in.take<std::uint8_t>())) {
    case Kind::kHello:
      return in.ended() ? std::optional<Message>(Hello{}) : std::nullopt;
    case Kind::kProbe:
      return in.ended() ? std::optional<Message>(Probe{}) : std::nullopt;
    case Kind::kOffer:
      return read_offer(in);
    case Kind::kAsk:
      return read_ask(in);
    case Kind::kJoin:
      return read_join(in);
    case Kind::kPlace:
      return read_place(in);
    case Kind::kCell: {
      Cell cell;
      cell.unit = in.take<std::uint32_t>();
      cell.cell = in.take<std::uint32_t>();
      cell.bytes = in.rest();
      if (!in.good() || cell.bytes.empty() || cell.bytes.size() > kUnitBytes) return std::nullopt;
      return cell;
    }
  }
  return std::nullopt;
}

Secret key_of(const Secret& group, std::uint64_t id) {
  std::vector<std::byte> context;
  Writer(context).put(id);
  return derive(group, "stdchk.multicast.datagram", context);
}

}  // namespace

Datagrams::Datagrams(const Secret& group) : group_(group) {
  std::array<std::byte, sizeof(id_)> random{};
  while (id_ == 0) {
    fill_random(random);
    std::memcpy(&id_, random.data(), sizeof(id_));
  }
  own_.set_key(key_of(group_, id_));
}

ByteSpan Datagrams::seal(const Message& message) {
  plain_.clear();
  Writer body(plain_);
  std::visit([&](const auto& each) { write(body, each); }, message);
  ++number_;
  out_.resize(kHeaderBytes + plain_.size() + Sealer::kTagBytes);
  std::copy(kMagic.begin(), kMagic.end(), out_.begin());
  put_at(out_, kMagic.size(), id_);
  put_at(out_, kMagic.size() + sizeof(id_), number_);
  const MutableByteSpan behind = MutableByteSpan(out_).subspan(kHeaderBytes);
  const Sealer::Tag tag = own_.seal(number_, plain_, behind.first(plain_.size()));
  std::copy(tag.begin(), tag.end(), behind.last(Sealer::kTagBytes).begin());
  return out_;
}

Sealer* Datagrams::sealer_of(std::uint64_t id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : found->second.get();
}

Result<Opened> Datagrams::open(ByteSpan datagram) {
  if (datagram.size() < kHeaderBytes + 1 + Sealer::kTagBytes ||
      datagram.size() > kDatagramBytesMax ||
      !std::equal(kMagic.begin(), kMagic.end(), datagram.begin())) {
    return fail(Code::kMalformed, "multicast.open");
  }
  Cursor header(datagram.subspan(kMagic.size()));
  Opened opened;
  opened.from = header.take<std::uint64_t>();
  opened.number = header.take<std::uint64_t>();
  Sealer* known = sealer_of(opened.from);
  std::unique_ptr<Sealer> fresh;
  if (known == nullptr) {
    fresh = std::make_unique<Sealer>();
    fresh->set_key(key_of(group_, opened.from));
  }
  const ByteSpan sealed =
      datagram.subspan(kHeaderBytes, datagram.size() - kHeaderBytes - Sealer::kTagBytes);
  plain_.resize(sealed.size());
  STDCHK_TRY((known != nullptr ? known : fresh.get())
                 ->open(opened.number, sealed, datagram.last(Sealer::kTagBytes), plain_));
  // Only a member's key is remembered: others cannot fill the table.
  if (fresh != nullptr && peers_.size() < kPeersMax) peers_.emplace(opened.from, std::move(fresh));
  auto message = read(plain_);
  if (!message) return fail(Code::kMalformed, "multicast.open");
  opened.message = std::move(*message);
  return opened;
}

}  // namespace stdchk::multicast
