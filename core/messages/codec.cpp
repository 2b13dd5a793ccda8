#include "core/messages/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <string_view>

#include "core/assert.h"
#include "core/limits.h"
#include "core/messages/stdchk.capnp.h"
#include "core/one_of_instance.h"

// The functions that see generated types live in their namespace, so that argument-dependent
// look-up finds the overload for a list's items.
namespace stdchk::msg::wire {

using XattrPair = std::pair<std::string, std::string>;

/// A Check collects the first reason why a message cannot be encoded or is not valid.
struct Check {
  Code code{};
  bool ok() const { return code == Code{}; }
  void require(bool condition, Code otherwise) {
    if (!condition && ok()) code = otherwise;
  }
};

// ---- values: what a C++ type is on the wire, and which values of it are valid ------------------

template <class T>
struct EnumOf;
#define STDCHK_WIRE_ENUM(Type, Wire, first, last)                           \
  template <>                                                               \
  struct EnumOf<Type> {                                                     \
    using wire = Wire;                                                      \
    static constexpr auto kFirst = static_cast<std::uint16_t>(Type::first); \
    static constexpr auto kLast = static_cast<std::uint16_t>(Type::last);   \
  }
STDCHK_WIRE_ENUM(stdchk::FileType, FileType, kRegular, kSymlink);
STDCHK_WIRE_ENUM(stdchk::Naming, Naming, kOff, kOn);
STDCHK_WIRE_ENUM(stdchk::NamingState, NamingState, kUnknown, kDidNotPay);
STDCHK_WIRE_ENUM(stdchk::DrainState, DrainState, kNone, kFailed);
STDCHK_WIRE_ENUM(msg::BenefactorState, BenefactorState, kAlive, kGone);
STDCHK_WIRE_ENUM(msg::XattrMode, XattrMode, kEither, kReplace);
STDCHK_WIRE_ENUM(msg::MirrorKind, MirrorKind, kRename, kSetAside);
#undef STDCHK_WIRE_ENUM
/// A plain number on the wire: a receiver leaves keys alone that it does not know.
template <>
struct EnumOf<PolicyKey> {
  using wire = std::uint16_t;
  static constexpr std::uint16_t kFirst = 0;
  static constexpr std::uint16_t kLast = 0xFFFF;
};
// The numbers of both sides are the same ones.
static_assert(static_cast<int>(FileType::SYMLINK) == static_cast<int>(stdchk::FileType::kSymlink));
static_assert(static_cast<int>(Naming::ON) == static_cast<int>(stdchk::Naming::kOn));
static_assert(static_cast<int>(NamingState::DID_NOT_PAY) ==
              static_cast<int>(stdchk::NamingState::kDidNotPay));
static_assert(static_cast<int>(DrainState::FAILED) ==
              static_cast<int>(stdchk::DrainState::kFailed));
static_assert(static_cast<int>(BenefactorState::GONE) ==
              static_cast<int>(msg::BenefactorState::kGone));
static_assert(static_cast<int>(XattrMode::REPLACE) == static_cast<int>(msg::XattrMode::kReplace));
static_assert(static_cast<int>(MirrorKind::SET_ASIDE) ==
              static_cast<int>(msg::MirrorKind::kSetAside));

template <class T>
auto to_wire(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<typename EnumOf<T>::wire>(value);
  } else {
    return value;
  }
}
template <class Tag>
std::uint64_t to_wire(const Id<Tag>& id) {
  return id.value;
}

template <class W, class T>
void from_wire(Check& check, W value, T& out) {
  if constexpr (std::is_enum_v<T>) {
    const auto number = static_cast<std::uint16_t>(value);
    check.require(number >= EnumOf<T>::kFirst && number <= EnumOf<T>::kLast, Code::kMalformed);
    if (check.ok()) out = static_cast<T>(number);
  } else {
    static_assert(std::is_same_v<W, T>);
    out = value;
  }
}
template <class Tag>
void from_wire(Check&, std::uint64_t value, Id<Tag>& out) {
  out.value = value;
}

static capnp::Data::Reader put_bytes(Check& check, const std::string& bytes, std::size_t max) {
  check.require(bytes.size() <= max, Code::kTooLarge);
  if (!check.ok()) return {};
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
static capnp::Data::Reader put_path(Check& check, const std::string& path, std::size_t max) {
  check.require(path.find('\0') == std::string::npos, Code::kInvalidArgument);
  return put_bytes(check, path, max);
}
static capnp::Text::Reader put_text(Check& check, const std::string& text, std::size_t max) {
  check.require(text.size() <= max, Code::kTooLarge);
  check.require(text.find('\0') == std::string::npos, Code::kInvalidArgument);
  if (!check.ok()) return {};
  return {text.data(), text.size()};
}

template <class R>
void get_bytes(Check& check, R bytes, std::size_t max, std::string& out) {
  check.require(bytes.size() <= max, Code::kMalformed);
  if (!check.ok() || bytes.size() == 0) return;
  out.assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}
template <class R>
void get_path(Check& check, R bytes, std::size_t max, std::string& out) {
  get_bytes(check, bytes, max, out);
  check.require(out.find('\0') == std::string::npos, Code::kMalformed);
}

// ---- lists -------------------------------------------------------------------------------------

template <class T>
struct IsId : std::false_type {};
template <class Tag>
struct IsId<Id<Tag>> : std::true_type {};
template <class T>
concept Plain = IsId<T>::value || std::is_arithmetic_v<T>;

template <class T, class Init>
void put_list(Check& check, const std::vector<T>& items, std::size_t max, Init init) {
  check.require(items.size() <= max, Code::kTooLarge);
  if (!check.ok() || items.empty()) return;
  auto list = init(static_cast<unsigned>(items.size()));
  for (unsigned i = 0; i < list.size() && check.ok(); ++i) {
    if constexpr (Plain<T>) {
      list.set(i, to_wire(items[i]));
    } else if constexpr (std::is_same_v<T, std::string>) {
      list.set(i, put_text(check, items[i], limits::kAddressBytesMax));
    } else {
      put(check, list[i], items[i]);
    }
  }
}

template <class L, class T>
void get_list(Check& check, L list, std::size_t max, std::vector<T>& items) {
  check.require(list.size() <= max, Code::kMalformed);
  if (!check.ok()) return;
  items.resize(list.size());
  for (unsigned i = 0; i < list.size() && check.ok(); ++i) {
    if constexpr (Plain<T>) {
      from_wire(check, list[i], items[i]);
    } else if constexpr (std::is_same_v<T, std::string>) {
      get_path(check, list[i], limits::kAddressBytesMax, items[i]);
    } else {
      get(check, list[i], items[i]);
    }
  }
}

// ---- chunks ------------------------------------------------------------------------------------

static std::uint64_t load_word(const ChunkName& name, std::size_t index) {
  std::uint64_t word = 0;
  for (std::size_t i = 8; i-- > 0;) {
    word = word << 8 | std::to_integer<std::uint64_t>(name.bytes[index * 8 + i]);
  }
  return word;
}
static void store_word(ChunkName& name, std::size_t index, std::uint64_t word) {
  for (std::size_t i = 0; i < 8; ++i) {
    name.bytes[index * 8 + i] = static_cast<std::byte>(word >> (8 * i) & 0xFF);
  }
}
template <class B>
void put_name(B builder, const ChunkName& name) {
  builder.setName0(load_word(name, 0));
  builder.setName1(load_word(name, 1));
  builder.setName2(load_word(name, 2));
  builder.setName3(load_word(name, 3));
}
template <class R>
void get_name(R reader, ChunkName& name) {
  store_word(name, 0, reader.getName0());
  store_word(name, 1, reader.getName1());
  store_word(name, 2, reader.getName2());
  store_word(name, 3, reader.getName3());
}

static void put(Check&, Extent::Builder builder, const stdchk::Extent& extent);
static void get(Check&, Extent::Reader reader, stdchk::Extent& extent);

static void put_copies(Check& check, Chunk::Builder builder,
                       const std::vector<stdchk::Extent>& copies) {
  check.require(copies.size() <= limits::kCopiesMax, Code::kTooLarge);
  if (!check.ok() || copies.empty()) return;
  check.require(bool(copies[0].benefactor), Code::kInvalidArgument);
  builder.setBenefactor(copies[0].benefactor.value);
  builder.setOffset(copies[0].offset);
  if (copies.size() == 1) return;
  auto more = builder.initMore(static_cast<unsigned>(copies.size() - 1));
  for (unsigned i = 0; i < more.size(); ++i) put(check, more[i], copies[i + 1]);
}
static void get_copies(Check& check, Chunk::Reader reader, std::vector<stdchk::Extent>& copies) {
  const auto more = reader.getMore();
  const BenefactorId first{reader.getBenefactor()};
  check.require(more.size() < limits::kCopiesMax && (first || more.size() == 0), Code::kMalformed);
  if (!check.ok() || !first) return;
  copies.resize(1 + more.size());
  copies[0] = {first, reader.getOffset()};
  for (unsigned i = 0; i < more.size(); ++i) get(check, more[i], copies[i + 1]);
}

/// What a ChunkMap promises: slices ascend, do not overlap and lie within their chunks.
static bool is_consistent(const stdchk::ChunkMap& map) {
  std::uint64_t end = 0;
  for (const stdchk::Slice& slice : map.slices) {
    if (slice.file_offset < end || slice.file_offset > limits::kFileBytesMax) return false;
    if (slice.chunk >= map.chunks.size()) return false;
    const std::uint64_t chunk_end = std::uint64_t{slice.chunk_offset} + slice.length;
    if (chunk_end > map.chunks[slice.chunk].length) return false;
    end = slice.file_offset + slice.length;
  }
  return end <= limits::kFileBytesMax;
}
template <class T>
bool is_consistent(const T&) {
  return true;
}

// ---- all messages: encode ----------------------------------------------------------------------

template <class T>
void put(Check&, Empty::Builder, const T&) {}

#define MESSAGE(Type, Wire)                                                                    \
  static void put([[maybe_unused]] Check& check, Wire::Builder builder, const Type& message) { \
    check.require(is_consistent(message), Code::kInvalidArgument);
#define END }
#define VALUE(member, Field) builder.set##Field(to_wire(message.member));
#define REQUIRED(member, Field)                                \
  check.require(bool(message.member), Code::kInvalidArgument); \
  VALUE(member, Field)
#define TEXT(member, Field, max) \
  if (!message.member.empty()) builder.set##Field(put_text(check, message.member, max));
#define PATH(member, Field, max) \
  if (!message.member.empty()) builder.set##Field(put_path(check, message.member, max));
#define BYTES(member, Field, max) \
  if (!message.member.empty()) builder.set##Field(put_bytes(check, message.member, max));
#define STRUCT(member, Field) put(check, builder.init##Field(), message.member);
#define OPTIONAL(member, Field) \
  if (message.member.id) put(check, builder.init##Field(), message.member);
#define LIST(member, Field, max) \
  put_list(check, message.member, max, [&](unsigned count) { return builder.init##Field(count); });
#define CHUNK_NAME(member) put_name(builder, message.member);
#define COPIES(member) put_copies(check, builder, message.member);
#include "core/messages/codec_fields.inc"

// ---- all messages: decode ----------------------------------------------------------------------

template <class T>
void get(Check&, Empty::Reader, T&) {}

#define MESSAGE(Type, Wire) \
  static void get([[maybe_unused]] Check& check, Wire::Reader reader, Type& message) {
#define END                                                \
  check.require(is_consistent(message), Code::kMalformed); \
  }
#define VALUE(member, Field) from_wire(check, reader.get##Field(), message.member);
#define REQUIRED(member, Field) \
  VALUE(member, Field)          \
  check.require(bool(message.member), Code::kMalformed);
#define TEXT(member, Field, max) get_path(check, reader.get##Field(), max, message.member);
#define PATH(member, Field, max) get_path(check, reader.get##Field(), max, message.member);
#define BYTES(member, Field, max) get_bytes(check, reader.get##Field(), max, message.member);
#define STRUCT(member, Field) get(check, reader.get##Field(), message.member);
#define OPTIONAL(member, Field)                                             \
  if (reader.has##Field()) get(check, reader.get##Field(), message.member); \
  if (!message.member.id) message.member = {};
#define LIST(member, Field, max) get_list(check, reader.get##Field(), max, message.member);
#define CHUNK_NAME(member) get_name(reader, message.member);
#define COPIES(member) get_copies(check, reader, message.member);
#include "core/messages/codec_fields.inc"

// ---- the envelope ------------------------------------------------------------------------------

#define STDCHK_REQUESTS(X)                     \
  X(RegisterClient, REGISTER_CLIENT)           \
  X(ClientHeartbeat, CLIENT_HEARTBEAT)         \
  X(GoodbyeClient, GOODBYE_CLIENT)             \
  X(ListBenefactors, LIST_BENEFACTORS)         \
  X(RegisterBenefactor, REGISTER_BENEFACTOR)   \
  X(BenefactorHeartbeat, BENEFACTOR_HEARTBEAT) \
  X(Lookup, LOOKUP)                            \
  X(GetAttributes, GET_ATTRIBUTES)             \
  X(ReadDirectory, READ_DIRECTORY)             \
  X(SetAttributes, SET_ATTRIBUTES)             \
  X(MakeDirectory, MAKE_DIRECTORY)             \
  X(MakeSymlink, MAKE_SYMLINK)                 \
  X(ReadSymlink, READ_SYMLINK)                 \
  X(Remove, REMOVE)                            \
  X(Rename, RENAME)                            \
  X(SetXattr, SET_XATTR)                       \
  X(GetXattrs, GET_XATTRS)                     \
  X(StatPool, STAT_POOL)                       \
  X(OpenSession, OPEN_SESSION)                 \
  X(Place, PLACE)                              \
  X(Commit, COMMIT)                            \
  X(CloseSession, CLOSE_SESSION)               \
  X(GetMap, GET_MAP)                           \
  X(Unpin, UNPIN)                              \
  X(DrainNow, DRAIN_NOW)                       \
  X(ListAborted, LIST_ABORTED)                 \
  X(FenceClient, FENCE_CLIENT)                 \
  X(DrainPieces, DRAIN_PIECES)                 \
  X(DrainFinish, DRAIN_FINISH)                 \
  X(MirrorChange, MIRROR_CHANGE)               \
  X(MoveExtents, MOVE_EXTENTS)                 \
  X(Attach, ATTACH)                            \
  X(GetPolicy, GET_POLICY)                     \
  X(SetPolicy, SET_POLICY)                     \
  X(ListSets, LIST_SETS)                       \
  X(CopyExtents, COPY_EXTENTS)                 \
  X(CheckExtents, CHECK_EXTENTS)               \
  X(GetDebt, GET_DEBT)                         \
  X(Scrub, SCRUB)                              \
  X(CheckMetadata, CHECK_METADATA)             \
  X(CollectGarbage, COLLECT_GARBAGE)           \
  X(BuildStripe, BUILD_STRIPE)                 \
  X(GetStripe, GET_STRIPE)                     \
  X(KeepLog, KEEP_LOG)                         \
  X(ReadLog, READ_LOG)                         \
  X(ReportWrongCopy, REPORT_WRONG_COPY)        \
  X(FollowManager, FOLLOW_MANAGER)             \
  X(ReportExtents, REPORT_EXTENTS)             \
  X(ForgetExtents, FORGET_EXTENTS)             \
  X(ResumeSession, RESUME_SESSION)             \
  X(ConfirmDrained, CONFIRM_DRAINED)           \
  X(FindDrained, FIND_DRAINED)

#define STDCHK_PUT_BODY(Type, TAG)                                              \
  [[maybe_unused]] static void put_body(Check& check, Request::Builder builder, \
                                        const msg::Type& body) {                \
    put(check, builder.init##Type(), body);                                     \
  }                                                                             \
  [[maybe_unused]] static void put_body(Check& check, Reply::Builder builder,   \
                                        const msg::Type::Reply& body) {         \
    put(check, builder.init##Type(), body);                                     \
  }
STDCHK_REQUESTS(STDCHK_PUT_BODY)
static void put_body(Check& check, Notice::Builder builder, const msg::Invalidate& body) {
  put(check, builder.initInvalidate(), body);
}

template <class Builder, class Body>
void put_variant(Check& check, Builder builder, const Body& body) {
  std::visit([&](const auto& alternative) { put_body(check, builder, alternative); }, body);
}

static void get_body(Check& check, Request::Reader reader, msg::Request& out) {
  switch (reader.which()) {
#define STDCHK_GET_BODY(Type, TAG) \
  case Request::TAG:               \
    return get(check, reader.get##Type(), out.emplace<msg::Type>());
    STDCHK_REQUESTS(STDCHK_GET_BODY)
#undef STDCHK_GET_BODY
  }
  check.require(false, Code::kMalformed);
}
static void get_body(Check& check, Reply::Reader reader, msg::Reply& out) {
  switch (reader.which()) {
    case Reply::NONE:
      break;
#define STDCHK_GET_BODY(Type, TAG) \
  case Reply::TAG:                 \
    return get(check, reader.get##Type(), out.emplace<msg::Type::Reply>());
      STDCHK_REQUESTS(STDCHK_GET_BODY)
#undef STDCHK_GET_BODY
  }
  check.require(false, Code::kMalformed);
}
static void get_body(Check& check, Notice::Reader reader, msg::Notice& out) {
  if (reader.which() == Notice::INVALIDATE) {
    return get(check, reader.getInvalidate(), out.emplace<msg::Invalidate>());
  }
  check.require(false, Code::kMalformed);
}

static void put(Check& check, Envelope::Builder builder, const msg::RequestEnvelope& envelope) {
  auto request = builder.initRequest();
  request.setCallId(envelope.call_id);
  request.setDeadlineMs(envelope.deadline_ms);
  request.setSender(envelope.sender);
  put_variant(check, request, envelope.body);
}
static void put(Check& check, Envelope::Builder builder, const msg::ReplyEnvelope& envelope) {
  auto reply = builder.initReply();
  reply.setCallId(envelope.call_id);
  reply.setCode(static_cast<std::uint16_t>(envelope.code));
  reply.setOsErrno(envelope.os_errno);
  reply.setRetryAfterMs(envelope.retry_after_ms);
  if (!envelope.detail.empty()) {
    reply.setDetail(put_text(check, envelope.detail, limits::kPathBytesMax));
  }
  if (envelope.code == Code{}) put_variant(check, reply, envelope.body);
}
static void put(Check& check, Envelope::Builder builder, const msg::NoticeEnvelope& envelope) {
  put_variant(check, builder.initNotice(), envelope.body);
}

static void get(Check& check, Request::Reader reader, msg::RequestEnvelope& envelope) {
  envelope.call_id = reader.getCallId();
  envelope.deadline_ms = reader.getDeadlineMs();
  envelope.sender = reader.getSender();
  get_body(check, reader, envelope.body);
}
static void get(Check& check, Reply::Reader reader, msg::ReplyEnvelope& envelope) {
  envelope.call_id = reader.getCallId();
  if (reader.getCode() != 0) envelope.code = code_from_number(reader.getCode());
  envelope.os_errno = reader.getOsErrno();
  envelope.retry_after_ms = reader.getRetryAfterMs();
  get_path(check, reader.getDetail(), limits::kPathBytesMax, envelope.detail);
  if (envelope.code == Code{}) get_body(check, reader, envelope.body);
}
static void get(Check& check, Envelope::Reader reader, msg::Envelope& envelope) {
  switch (reader.which()) {
    case Envelope::REQUEST:
      return get(check, reader.getRequest(), envelope.emplace<msg::RequestEnvelope>());
    case Envelope::REPLY:
      return get(check, reader.getReply(), envelope.emplace<msg::ReplyEnvelope>());
    case Envelope::NOTICE:
      return get_body(check, reader.getNotice(), envelope.emplace<msg::NoticeEnvelope>().body);
  }
  check.require(false, Code::kMalformed);
}

}  // namespace stdchk::msg::wire

namespace stdchk::msg {
namespace {

// A message is one segment behind Cap'n Proto's stream frame: segments - 1 and the segment's words,
// both 32-bit little endian.
constexpr std::size_t kWordBytes = sizeof(capnp::word);
constexpr std::size_t kFrameBytes = 8;
constexpr std::size_t kSegmentWordsMax = (limits::kMessageBytesMax - kFrameBytes) / kWordBytes;
static_assert(kWordBytes == 8 && limits::kMessageBytesMax % kWordBytes == 0);

/// Words of this thread that a message is built in, or copied to when it is not aligned. Kept, so
/// that an ordinary message allocates nothing; zero between messages.
kj::ArrayPtr<capnp::word> scratch() {
  thread_local std::vector<std::uint64_t> words(kSegmentWordsMax);
  return {reinterpret_cast<capnp::word*>(words.data()), words.size()};
}

std::uint32_t load_u32(const std::byte* at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}
void store_u32(std::byte* at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
}

/// The adapter for kj's exceptions: calls `work`, which may throw them, and answers `otherwise`
/// then.
template <class Work>
Status without_exceptions(Code otherwise, const char* where, Work work) {
  try {
    return work();
  } catch (const kj::Exception&) {
    return fail(otherwise, where);
  }
}

template <class Root, class Put>
Status encode_root(std::vector<std::byte>& out, const char* where, Put put) {
  return without_exceptions(Code::kTooLarge, where, [&]() -> Status {
    capnp::MallocMessageBuilder message(scratch());
    wire::Check check;
    put(check, message.initRoot<Root>());
    if (!check.ok()) return fail(check.code, where);
    const auto segments = message.getSegmentsForOutput();
    if (segments.size() != 1) return fail(Code::kTooLarge, where);
    const auto bytes = segments[0].asBytes();
    out.resize(kFrameBytes + bytes.size());
    store_u32(out.data(), 0);
    store_u32(out.data() + 4, static_cast<std::uint32_t>(segments[0].size()));
    std::memcpy(out.data() + kFrameBytes, bytes.begin(), bytes.size());
    return {};
  });
}

/// Calls `get` with the words of a framed message.
template <class Root, class Get>
Status decode_root(ByteSpan bytes, const char* where, Get get) {
  if (bytes.size() < kFrameBytes || bytes.size() > limits::kMessageBytesMax ||
      bytes.size() % kWordBytes != 0 || load_u32(bytes.data()) != 0 ||
      load_u32(bytes.data() + 4) != (bytes.size() - kFrameBytes) / kWordBytes) {
    return fail(Code::kMalformed, where);
  }
  const ByteSpan content = bytes.subspan(kFrameBytes);
  const std::size_t words = content.size() / kWordBytes;
  const auto* aligned = reinterpret_cast<const capnp::word*>(content.data());
  thread_local std::vector<std::uint64_t> copy;
  if (reinterpret_cast<std::uintptr_t>(content.data()) % alignof(std::uint64_t) != 0) {
    copy.resize(words);
    std::memcpy(copy.data(), content.data(), content.size());
    aligned = reinterpret_cast<const capnp::word*>(copy.data());
  }
  return without_exceptions(Code::kMalformed, where, [&]() -> Status {
    // A valid message is read about once; many pointers to the same bytes run into the limit.
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 2 * words + 64;
    options.nestingLimit = 16;
    const kj::ArrayPtr<const capnp::word> segments[] = {{aligned, words}};
    capnp::SegmentArrayMessageReader message({segments, 1}, options);
    wire::Check check;
    get(check, message.getRoot<Root>());
    if (!check.ok()) return fail(check.code, where);
    return {};
  });
}

}  // namespace

Status encode(const Envelope& envelope, std::vector<std::byte>& out) {
  return encode_root<wire::Envelope>(
      out, "message.encode", [&](wire::Check& check, wire::Envelope::Builder builder) {
        std::visit([&](const auto& kind) { wire::put(check, builder, kind); }, envelope);
      });
}

Result<Envelope> decode(ByteSpan bytes) {
  Result<Envelope> envelope;
  STDCHK_TRY((decode_root<wire::Envelope>(bytes, "message.decode",
                                          [&](wire::Check& check, wire::Envelope::Reader reader) {
                                            wire::get(check, reader, *envelope);
                                          })));
  return envelope;
}

}  // namespace stdchk::msg

namespace stdchk {

template class OneOf<msg::AnyRequest>;
template class OneOf<msg::AnyReply>;
#define STDCHK_INSTANCE(Type, TAG)                   \
  template OneOf<msg::AnyRequest>::OneOf(msg::Type); \
  template OneOf<msg::AnyReply>::OneOf(msg::Type::Reply);
STDCHK_REQUESTS(STDCHK_INSTANCE)

}  // namespace stdchk
