#include "transport/verbs/fragment.h"

#include <algorithm>
#include <cstring>

namespace stdchk::transport::verbs {

bool greets(ByteSpan bytes) {
  Greeting other;
  if (bytes.size() < sizeof(other)) return false;
  std::memcpy(&other, bytes.data(), sizeof(other));
  return other == Greeting{};
}

Result<std::optional<ByteSpan>> Assembler::add(const FragmentHeader& header, ByteSpan content) {
  constexpr const char* kWhere = "verbs.fragment";
  const std::size_t total = header.message_bytes;
  if (!within_) message_.clear();
  if (total > message_bytes_max_ || content.size() > total - std::min(total, message_.size())) {
    return fail(Code::kMalformed, kWhere);
  }
  if (!within_ && content.size() == total) return std::optional(content);
  if (content.empty()) return fail(Code::kMalformed, kWhere);
  message_.insert(message_.end(), content.begin(), content.end());
  within_ = message_.size() < total;
  if (within_) return std::optional<ByteSpan>();
  return std::optional(ByteSpan(message_));
}

}  // namespace stdchk::transport::verbs
