#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "core/base/limits.h"
#include "core/messages/codec.h"
#include "core/messages/fields.h"
#include "core/messages/frame.h"
#include "core/messages/map_check.h"
#include "core/messages/stdchk.capnp.h"

// The schema describes all fields and checks (core/schema/README.md). This file has the rest.

namespace stdchk::wire {

using namespace schema;

static void get(Check&, Extent::Reader from, stdchk::Extent& to);

static void get(Check& check, Chunk::Copies::Reader from, std::vector<stdchk::Extent>& to) {
  const auto more = from.getMore();
  const BenefactorId first{from.getBenefactor()};
  check.require(more.size() < limits::kCopiesMax && (first || more.size() == 0), Code::kMalformed);
  if (!check.ok() || !first) return;
  to.resize(1 + more.size());
  to[0] = {first, from.getOffset()};
  for (unsigned i = 0; i < more.size(); ++i) get(check, more[i], to[i + 1]);
}

}  // namespace stdchk::wire

#include "core/values/values.decode.h"

namespace stdchk::msg::wire {
using namespace schema;
}  // namespace stdchk::msg::wire

#include "core/messages/stdchk.decode.h"

// ---- the envelope ------------------------------------------------------------------------------

namespace stdchk::msg::wire {

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

std::uint32_t load_u32(const std::byte* at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
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

Result<Envelope> decode(ByteSpan bytes) {
  Result<Envelope> envelope;
  STDCHK_TRY((decode_root<wire::Envelope>(bytes, "message.decode",
                                          [&](schema::Check& check, wire::Envelope::Reader reader) {
                                            wire::get(check, reader, *envelope);
                                          })));
  return envelope;
}

}  // namespace stdchk::msg
