#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "core/messages/stdchk.structs.h"

/// The messages of stdchk as plain values. The schema core/messages/stdchk.capnp describes them,
/// and the build makes stdchk.structs.h of it. Only the codec (core/messages/codec.h) sees Cap'n
/// Proto. docs/internals/protocol.md tells who sends what when.
namespace stdchk::msg {

/// Bits of SetAttributes::mask.
enum class SetMask : std::uint32_t {
  kMode = 1,
  kUid = 2,
  kGid = 4,
  kAtime = 8,
  kMtime = 16,
};

/// The folder of temporary files in the drain directory.
inline constexpr const char* kTemporaryFolder = ".stdchk-drain";
/// The name in that folder of the temporary file of (file, number).
inline std::string temporary_name(FileId file, std::uint64_t number) {
  return std::to_string(file.value) + "." + std::to_string(number);
}

/// The client may repeat such a request under its present number, even where it sent it before.
constexpr bool may_ask_again(RequestKind kind) {
  return kind == RequestKind::kAsks || kind == RequestKind::kInstructs ||
         kind == RequestKind::kOpens;
}
inline RequestKind kind_of(const Request& request) {
  return std::visit([]<class M>(const M&) { return M::kKind; }, request);
}

namespace detail {
template <class V>
struct RepliesOf;
template <class... R>
struct RepliesOf<std::variant<R...>> {
  using type = std::variant<typename R::Reply...>;
};
}  // namespace detail
static_assert(std::is_same_v<AnyReply, detail::RepliesOf<AnyRequest>::type>,
              "each request of the schema's Request has its Reply at the same place of Reply");

using Envelope = std::variant<RequestEnvelope, ReplyEnvelope, NoticeEnvelope>;

}  // namespace stdchk::msg
