#include "client/read/part_crcs.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/chunk/crc_joined.h"
#include "core/chunk/naming.h"

namespace stdchk::client {

PartCrcList PartCrcs::compute(ByteSpan content) {
  PartCrcList parts;
  parts.reserve((content.size() + kPartBytes - 1) / kPartBytes);
  for (; !content.empty();
       content = content.subspan(std::min<std::size_t>(content.size(), kPartBytes))) {
    parts.push_back(crc32c(0, content.first(std::min<std::size_t>(content.size(), kPartBytes))));
  }
  return parts;
}

std::uint32_t PartCrcs::joined(const PartCrcList& parts, std::size_t bytes) {
  std::uint32_t all = 0;
  for (const std::uint32_t part : parts) {
    const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, kPartBytes));
    all = crc32c_joined(all, part, length);
    bytes -= length;
  }
  return all;
}

/// Two nodes of containers, and the CRCs.
std::size_t PartCrcs::cost(const PartCrcList& parts) {
  constexpr std::size_t kNodes = 3 * sizeof(CacheKey) + sizeof(Known) + 64;
  return kNodes + parts.size() * sizeof(std::uint32_t);
}

void PartCrcs::insert(const CacheKey& key, PartCrcList parts) {
  STDCHK_ASSERT(parts.size() == (key.length + kPartBytes - 1) / kPartBytes);
  forget(key);
  bytes_ += cost(parts);
  recent_.push_front(key);
  known_.emplace(key, Known{std::move(parts), recent_.begin()});
  while (bytes_ > kBytesMax) {
    const CacheKey oldest = recent_.back();
    forget(oldest);
  }
}

const PartCrcList* PartCrcs::find(const CacheKey& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second.recent);
  return &found->second.parts;
}

void PartCrcs::forget(const CacheKey& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return;
  bytes_ -= cost(found->second.parts);
  recent_.erase(found->second.recent);
  known_.erase(found);
}

}  // namespace stdchk::client
