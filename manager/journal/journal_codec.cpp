#include "manager/journal/journal_codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <array>
#include <cstring>

#include "core/base/limits.h"
#include "core/base/one_of_instance.h"
#include "core/chunk/naming.h"
#include "core/messages/fields.h"
#include "manager/journal/journal.capnp.h"

// The schema describes all fields and checks (core/schema/README.md). This file has the rest.

namespace stdchk::manager::wire {

using namespace schema;

/// Limits of the chunk table: numbers of benefactors, and offsets of extents.
constexpr std::uint64_t kBenefactorsEnd = std::uint64_t{1} << 24;
constexpr std::uint64_t kOffsetsEnd = limits::kExtentAlignment * (std::uint64_t{1} << 40);
/// Commits and changes are counted up from 1: no pool reaches this number, and beyond it a count
/// could wrap.
constexpr std::uint64_t kCountsEnd = std::uint64_t{1} << 62;

static capnp::Data::Reader put_bytes(Check&, const ChunkName& name, std::size_t) {
  return {reinterpret_cast<const kj::byte*>(name.bytes.data()), name.bytes.size()};
}
static void get_bytes(Check& check, capnp::Data::Reader bytes, ChunkName& name, std::size_t) {
  if (bytes.size() == 0) return;
  check.require(bytes.size() == name.bytes.size(), Code::kMalformed);
  if (check.ok()) std::memcpy(name.bytes.data(), bytes.begin(), name.bytes.size());
}

template <class Init>
void put_list(Check& check, const Policy& policy, Init init, std::size_t max) {
  put_list(check, policy.settings, init, max);
}
template <class List>
void get_list(Check& check, List list, Policy& policy, std::size_t max) {
  get_list(check, list, policy.settings, max);
}

}  // namespace stdchk::manager::wire

#include "manager/journal/journal.decode.h"
#include "manager/journal/journal.encode.h"

namespace stdchk::manager {

Status encode_command(const Command& command, std::vector<std::byte>& out) {
  try {
    capnp::MallocMessageBuilder message;
    auto root = message.initRoot<wire::Command>();
    schema::Check check;
    std::visit([&](const auto& body) { wire::put_body(check, root, body); }, command);
    if (!check.ok()) return fail(check.code, "journal.encode");
    const auto words = capnp::messageToFlatArray(message);
    const auto bytes = words.asBytes();
    out.resize(bytes.size());
    std::memcpy(out.data(), bytes.begin(), bytes.size());
  } catch (const kj::Exception&) {
    return fail(Code::kTooLarge, "journal.encode");
  }
  return {};
}

Result<Command> decode_command(ByteSpan bytes) {
  try {
    const std::size_t words = bytes.size() / sizeof(capnp::word);
    auto aligned = kj::heapArray<capnp::word>(words);
    if (words > 0) std::memcpy(aligned.begin(), bytes.data(), words * sizeof(capnp::word));
    capnp::ReaderOptions options;
    // Lists of structs are read a few times while they are decoded.
    options.traversalLimitInWords = 8 * words + 1024;
    capnp::FlatArrayMessageReader reader(aligned, options);
    Command command;
    schema::Check check;
    wire::get_body(check, reader.getRoot<wire::Command>(), command);
    if (!check.ok()) return fail(Code::kCorrupt, "journal.decode");
    return command;
  } catch (const kj::Exception&) {
    return fail(Code::kCorrupt, "journal.decode");
  }
}

std::uint32_t record_crc(std::uint64_t sequence, ByteSpan bytes) {
  constexpr std::size_t kSequenceBytes = 8;
  std::array<std::byte, kSequenceBytes + 4> head;
  for (std::size_t i = 0; i < head.size(); ++i) {
    head[i] = i < kSequenceBytes
                  ? static_cast<std::byte>(sequence >> (8 * i))
                  : static_cast<std::byte>(bytes.size() >> (8 * (i - kSequenceBytes)));
  }
  return crc32c(crc32c(0, head), bytes);
}

}  // namespace stdchk::manager
