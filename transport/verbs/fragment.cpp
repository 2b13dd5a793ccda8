#include "transport/verbs/fragment.h"

#include <algorithm>
#include <cstring>

namespace stdchk::transport::verbs {

std::optional<Greeting> greeting_of(ByteSpan bytes) {
  Greeting other;
  if (bytes.size() < sizeof(other)) return {};
  std::memcpy(&other, bytes.data(), sizeof(other));
  Greeting expected;
  expected.tables = other.tables;
  return other == expected ? std::optional(other) : std::nullopt;
}

std::vector<std::byte> encode(const RegionTable& table) {
  const auto count = static_cast<std::uint32_t>(table.keys.size());
  std::vector<std::byte> bytes(16 + count * sizeof(std::uint32_t));
  std::memcpy(bytes.data(), &table.number, 4);
  std::memcpy(bytes.data() + 4, &count, 4);
  std::memcpy(bytes.data() + 8, &table.part_bytes, 8);
  if (count > 0) std::memcpy(bytes.data() + 16, table.keys.data(), bytes.size() - 16);
  return bytes;
}

Result<RegionTable> decode_region_table(ByteSpan bytes) {
  RegionTable table;
  std::uint32_t count = 0;
  if (bytes.size() >= 16) {
    std::memcpy(&table.number, bytes.data(), 4);
    std::memcpy(&count, bytes.data() + 4, 4);
    std::memcpy(&table.part_bytes, bytes.data() + 8, 8);
  }
  if (table.number == 0 || table.part_bytes == 0 || count == 0 || count > kRegionPartsMax ||
      bytes.size() != 16 + count * sizeof(std::uint32_t)) {
    return fail(Code::kMalformed, "verbs.region table");
  }
  table.keys.resize(count);
  std::memcpy(table.keys.data(), bytes.data() + 16, bytes.size() - 16);
  return table;
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
