#include "tests/unit/core/random_message.h"

#include <type_traits>

#include "core/base/limits.h"
#include "core/messages/stdchk.members.h"
#include "core/values/values.members.h"

namespace stdchk::msg {
namespace {

template <class T>
requires std::is_integral_v<T>
void fill(Prng& prng, T& value) { value = static_cast<T>(prng.next()); }
void fill(Prng& prng, bool& value) { value = prng.next() % 2 == 0; }
template <class T>
requires std::is_enum_v<T>
void fill(Prng& prng, T& value) {
  const auto first = static_cast<std::uint64_t>(range_of(T{}).first);
  const auto last = static_cast<std::uint64_t>(range_of(T{}).last);
  value = static_cast<T>(first + prng.below(last - first + 1));
}
void fill(Prng& prng, PolicyKey& value) { value = static_cast<PolicyKey>(prng.below(100)); }
template <class Tag>
void fill(Prng& prng, Id<Tag>& value) {
  value.value = prng.next() | 1;
}
void fill(Prng& prng, std::string& text) {
  text.resize(1 + prng.below(20));
  for (char& c : text) c = static_cast<char>('a' + prng.below(26));
}
void fill(Prng& prng, ChunkName& name) {
  for (std::byte& byte : name.bytes) byte = static_cast<std::byte>(prng.below(256));
}
void fill_copies(Prng& prng, std::vector<Extent>& copies) {
  copies.resize(prng.below(4));
  for (Extent& copy : copies) copy = {BenefactorId{prng.next() | 1}, prng.next()};
}
void fill(Prng& prng, Chunk& chunk) {
  fill(prng, chunk.name);
  fill(prng, chunk.length);
  fill(prng, chunk.crc);
  fill_copies(prng, chunk.copies);
}
/// Slices that fit their chunks.
void fill(Prng& prng, ChunkMap& map) {
  std::uint64_t at = prng.below(1000);
  map.chunks.resize(1 + prng.below(5));
  for (Chunk& chunk : map.chunks) {
    fill(prng, chunk.name);
    chunk.length = static_cast<std::uint32_t>(1 + prng.below(limits::kChunkBytesMax));
    chunk.crc = static_cast<std::uint32_t>(prng.next());
    fill_copies(prng, chunk.copies);
    const auto offset = static_cast<std::uint32_t>(prng.below(chunk.length));
    map.slices.push_back({at, chunk.length - offset, offset,
                          static_cast<std::uint32_t>(&chunk - map.chunks.data())});
    at += chunk.length + prng.below(3);
  }
}
void fill(Prng& prng, PolicySetting& setting) {
  fill(prng, setting.key);
  fill(prng, setting.value);
}
template <class T>
void fill(Prng& prng, std::vector<T>& items);
void fill(Prng& prng, Policy& policy) { fill(prng, policy.settings); }
void fill(Prng& prng, std::pair<std::string, std::string>& pair) {
  fill(prng, pair.first);
  fill(prng, pair.second);
}
template <class... Members>
void fill_each(Prng& prng, Members&... members) {
  (fill(prng, members), ...);
}
// Attributes and DrainPiece are filled in the order of their numbers on the wire, as when the
// golden lines were made.
void fill(Prng& prng, Attributes& to) {
  fill_each(prng, to.id, to.type, to.drain, to.mode, to.uid, to.gid, to.link_count, to.size_bytes,
            to.stored_bytes, to.version, to.atime_ns, to.mtime_ns, to.ctime_ns, to.copies,
            to.naming);
}
void fill(Prng& prng, DrainPiece& to) {
  fill_each(prng, to.file_offset, to.extent_offset, to.length, to.chunk_offset, to.chunk_length,
            to.crc, to.name);
}

/// Any other struct, member by member.
template <class T>
requires std::is_class_v<T>
void fill(Prng& prng, T& message) {
  const auto fill_member = [&](auto& member, std::size_t max = 0) {
    fill(prng, member);
    if constexpr (std::is_same_v<decltype(member), std::string&>) {
      if (member.size() > max) member.resize(max);
    }
  };
  each_member(fill_member, message);
}
template <class T>
void fill(Prng& prng, std::vector<T>& items) {
  items.resize(1 + prng.below(4));
  for (T& item : items) fill(prng, item);
}

/// The alternative of V with that index, filled.
template <class V, class Out, std::size_t I = 0>
Out random_alternative(Prng& prng, std::size_t index) {
  if constexpr (I < std::variant_size_v<V>) {
    if (index != I) return random_alternative<V, Out, I + 1>(prng, index);
    std::variant_alternative_t<I, V> value;
    fill(prng, value);
    return value;
  } else {
    return {};
  }
}

}  // namespace
}  // namespace stdchk::msg

namespace stdchk::test {

msg::Envelope random_message(Prng& prng, std::size_t kind) {
  constexpr std::size_t kRequests = std::variant_size_v<msg::AnyRequest>;
  if (kind < kRequests) {
    return msg::RequestEnvelope{prng.next(), static_cast<std::uint32_t>(prng.next()), prng.next(),
                                msg::random_alternative<msg::AnyRequest, msg::Request>(prng, kind)};
  }
  kind -= kRequests;
  if (kind < kRequests) {
    return msg::ReplyEnvelope{
        prng.next(), Code{}, 0,
        0,           "",     msg::random_alternative<msg::AnyReply, msg::Reply>(prng, kind)};
  }
  kind -= kRequests;
  if (kind < std::variant_size_v<msg::AnyNotice>) {
    return msg::NoticeEnvelope{msg::random_alternative<msg::AnyNotice, msg::Notice>(prng, kind)};
  }
  return msg::ReplyEnvelope{prng.next(), Code::kNoSpace, 28, 250, "the pool is full", {}};
}

}  // namespace stdchk::test
