#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "core/base/limits.h"
#include "core/base/one_of_instance.h"
#include "core/messages/codec.h"
#include "core/messages/fields.h"
#include "core/messages/frame.h"
#include "core/messages/map_check.h"
#include "core/messages/stdchk.capnp.h"

// The schema describes all fields and checks (core/schema/README.md). This file has the rest.

namespace stdchk::wire {

using namespace schema;

static void put(Check&, Extent::Builder to, const stdchk::Extent& from);

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

}  // namespace stdchk::wire

#include "core/values/values.encode.h"

namespace stdchk::msg::wire {
using namespace schema;
}  // namespace stdchk::msg::wire

#include "core/messages/stdchk.encode.h"

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

}  // namespace stdchk::msg::wire

namespace stdchk::msg {
namespace {

/// Buffer of this thread: messages are built here. Kept, so
/// that an ordinary message allocates nothing; zero between messages.
kj::ArrayPtr<capnp::word> scratch() {
  thread_local std::vector<std::uint64_t> words(kSegmentWordsMax);
  return {reinterpret_cast<capnp::word*>(words.data()), words.size()};
}

void store_u32(std::byte* at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
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

}  // namespace

Status encode(const Envelope& envelope, std::vector<std::byte>& out) {
  return encode_root<wire::Envelope>(
      out, "message.encode", [&](schema::Check& check, wire::Envelope::Builder builder) {
        std::visit([&](const auto& kind) { wire::put(check, builder, kind); }, envelope);
      });
}

}  // namespace stdchk::msg
