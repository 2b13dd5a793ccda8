#include "tests/unit/core/random_message.h"

#include <type_traits>

#include "core/limits.h"

namespace stdchk::msg {
namespace {

using XattrPair = std::pair<std::string, std::string>;

// ---- each member of each struct is in the codec's table: both are counted at compile time

struct Anything {
  template <class T>
  operator T() const;
};
template <class T, class... Args>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Args{}..., Anything{}}; }) {
    return member_count<T, Args..., Anything>();
  } else {
    return sizeof...(Args);
  }
}

#define MESSAGE(Type, Wire) static_assert(member_count<Type>() == 0
#define END , "a member is not in core/messages/codec_fields.inc");
#define VALUE(member, Field) +1
#define REQUIRED(member, Field) +1
#define TEXT(member, Field, max) +1
#define PATH(member, Field, max) +1
#define BYTES(member, Field, max) +1
#define STRUCT(member, Field) +1
#define OPTIONAL(member, Field) +1
#define LIST(member, Field, max) +1
#define CHUNK_NAME(member) +1
#define COPIES(member) +1
#include "core/messages/codec_fields.inc"

// ---- random values

template <class T>
void fill(Prng&, T&) {}  // messages without fields

void fill_value(Prng& prng, bool& value) { value = prng.next() % 2 == 0; }
void fill_value(Prng& prng, FileType& value) { value = static_cast<FileType>(1 + prng.below(3)); }
void fill_value(Prng& prng, Naming& value) { value = static_cast<Naming>(prng.below(3)); }
void fill_value(Prng& prng, NamingState& value) { value = static_cast<NamingState>(prng.below(4)); }
void fill_value(Prng& prng, DrainState& value) { value = static_cast<DrainState>(prng.below(5)); }
void fill_value(Prng& prng, PolicyKey& value) { value = static_cast<PolicyKey>(prng.below(100)); }
void fill_value(Prng& prng, XattrMode& value) { value = static_cast<XattrMode>(prng.below(3)); }
void fill_value(Prng& prng, MirrorKind& value) {
  value = static_cast<MirrorKind>(1 + prng.below(8));
}
void fill_value(Prng& prng, BenefactorState& value) {
  value = static_cast<BenefactorState>(1 + prng.below(3));
}
template <class T>
requires std::is_integral_v<T>
void fill_value(Prng& prng, T& value) { value = static_cast<T>(prng.next()); }
template <class Tag>
void fill_value(Prng& prng, Id<Tag>& value) {
  value.value = prng.next() | 1;
}
void fill_text(Prng& prng, std::string& text) {
  text.resize(1 + prng.below(20));
  for (char& c : text) c = static_cast<char>('a' + prng.below(26));
}
void fill_name(Prng& prng, ChunkName& name) {
  for (std::byte& byte : name.bytes) byte = static_cast<std::byte>(prng.below(256));
}
void fill_copies(Prng& prng, std::vector<Extent>& copies) {
  copies.resize(prng.below(4));
  for (Extent& copy : copies) copy = {BenefactorId{prng.next() | 1}, prng.next()};
}
template <class T>
void fill_list(Prng& prng, std::vector<T>& items);

void fill_map(Prng& prng, ChunkMap& map) {
  std::uint64_t at = prng.below(1000);
  map.chunks.resize(1 + prng.below(5));
  for (Chunk& chunk : map.chunks) {
    fill_name(prng, chunk.name);
    chunk.length = static_cast<std::uint32_t>(1 + prng.below(limits::kChunkBytesMax));
    chunk.crc = static_cast<std::uint32_t>(prng.next());
    fill_copies(prng, chunk.copies);
    const auto offset = static_cast<std::uint32_t>(prng.below(chunk.length));
    map.slices.push_back({at, chunk.length - offset, offset,
                          static_cast<std::uint32_t>(&chunk - map.chunks.data())});
    at += chunk.length + prng.below(3);
  }
}

#define MESSAGE(Type, Wire) \
  template <>               \
  [[maybe_unused]] void fill<Type>([[maybe_unused]] Prng & prng, Type & message) {
#define END }
#define VALUE(member, Field) fill_value(prng, message.member);
#define REQUIRED(member, Field) fill_value(prng, message.member);
#define TEXT(member, Field, max) fill_text(prng, message.member);
#define PATH(member, Field, max) fill_text(prng, message.member);
#define BYTES(member, Field, max)  \
  fill_text(prng, message.member); \
  if (message.member.size() > (max)) message.member.resize(max);
#define STRUCT(member, Field) fill_struct(prng, message.member);
#define OPTIONAL(member, Field) fill_struct(prng, message.member);
#define LIST(member, Field, max) fill_list(prng, message.member);
#define CHUNK_NAME(member) fill_name(prng, message.member);
#define COPIES(member) fill_copies(prng, message.member);

template <class T>
void fill_struct(Prng& prng, T& message) {
  if constexpr (std::is_same_v<T, ChunkMap>) {
    fill_map(prng, message);
  } else {
    fill(prng, message);
  }
}
#include "core/messages/codec_fields.inc"

template <class T>
void fill_list(Prng& prng, std::vector<T>& items) {
  items.resize(1 + prng.below(4));
  for (T& item : items) {
    if constexpr (std::is_same_v<T, std::string>) {
      fill_text(prng, item);
    } else if constexpr (requires { fill_value(prng, item); }) {
      fill_value(prng, item);
    } else if constexpr (std::is_same_v<T, XattrPair>) {
      fill_text(prng, item.first);
      fill_text(prng, item.second);
    } else {
      fill(prng, item);
    }
  }
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
  if (kind < std::variant_size_v<msg::Notice>) {
    return msg::NoticeEnvelope{msg::random_alternative<msg::Notice, msg::Notice>(prng, kind)};
  }
  return msg::ReplyEnvelope{prng.next(), Code::kNoSpace, 28, 250, "the pool is full", {}};
}

}  // namespace stdchk::test
