#include "core/messages/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "core/base/limits.h"
#include "core/base/one_of_instance.h"
#include "core/messages/fields.h"
#include "core/messages/stdchk.capnp.h"

// The schema describes all fields and checks (core/schema/README.md). This file has the rest.

namespace stdchk::wire {

using namespace schema;

static void put(Check&, Extent::Builder to, const stdchk::Extent& from);
static void get(Check&, Extent::Reader from, stdchk::Extent& to);

/// Writes the first copy of a chunk into the struct itself, and further copies into a list.
static void put(Check& check, Chunk::Copies::Builder to, const std::vector<stdchk::Extent>& from) {
  check.require(from.size() <= limits::kCopiesMax, Code::kTooLarge);
  if (!check.ok() || from.empty()) return;
  check.require(bool(from[0].benefactor), Code::kInvalidArgument);
  to.setBenefactor(from[0].benefactor.value);
  to.setOffset(from[0].offset);
  if (from.size() == 1) return;
  auto more = to.initMore(static_cast<unsigned>(from.size() - 1));
  for (unsigned i = 0; i < more.size(); ++i) put(check, more[i], from[i + 1]);
}
static void get(Check& check, Chunk::Copies::Reader from, std::vector<stdchk::Extent>& to) {
  const auto more = from.getMore();
  const BenefactorId first{from.getBenefactor()};
  check.require(more.size() < limits::kCopiesMax && (first || more.size() == 0), Code::kMalformed);
  if (!check.ok() || !first) return;
  to.resize(1 + more.size());
  to[0] = {first, from.getOffset()};
  for (unsigned i = 0; i < more.size(); ++i) get(check, more[i], to[i + 1]);
}

/// Slices ascend, do not overlap and lie within their chunks.
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

}  // namespace stdchk::wire

#include "core/values/values.codec.h"

namespace stdchk::msg::wire {
using namespace schema;
}  // namespace stdchk::msg::wire

#include "core/messages/stdchk.codec.h"

// ---- the envelope ------------------------------------------------------------------------------

namespace stdchk::msg::wire {

template <class Builder, class Body>
void put_variant(Check& check, Builder builder, const Body& body) {
  std::visit([&](const auto& alternative) { put_body(check, builder, alternative); }, body);
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
  get_path(check, reader.getDetail(), envelope.detail, limits::kPathBytesMax);
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

/// Buffer of this thread: messages are built here, and unaligned messages are copied here. Kept, so
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
    schema::Check check;
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
    schema::Check check;
    get(check, message.getRoot<Root>());
    if (!check.ok()) return fail(check.code, where);
    return {};
  });
}

}  // namespace

Status encode(const Envelope& envelope, std::vector<std::byte>& out) {
  return encode_root<wire::Envelope>(
      out, "message.encode", [&](schema::Check& check, wire::Envelope::Builder builder) {
        std::visit([&](const auto& kind) { wire::put(check, builder, kind); }, envelope);
      });
}

Result<Envelope> decode(ByteSpan bytes) {
  Result<Envelope> envelope;
  STDCHK_TRY((decode_root<wire::Envelope>(bytes, "message.decode",
                                          [&](schema::Check& check, wire::Envelope::Reader reader) {
                                            wire::get(check, reader, *envelope);
                                          })));
  return envelope;
}

}  // namespace stdchk::msg
