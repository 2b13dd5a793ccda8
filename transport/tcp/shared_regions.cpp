#include "transport/tcp/shared_regions.h"

#include <span>
#include <utility>

namespace stdchk::transport::tcp {

bool WriteGuard::is_write_allowed() {
  if (check == nullptr || check->revision() == revision) return true;
  revision = check->revision();
  return check->may_write(offset, length);
}

RemoteKey SharedRegions::share(const TcpRegion& region, bool writable,
                               std::shared_ptr<WriteCheck> check) {
  Shared wanted{&region, writable, std::move(check)};
  const std::uint64_t length = region.bytes().size();
  for (const auto& [key, shared] : by_key_) {
    if (shared == wanted) return {key, 0, length};
  }
  std::uint64_t key = 0;
  while (key == 0 || by_key_.contains(key)) {
    fill_random(std::as_writable_bytes(std::span(&key, 1)));
  }
  by_key_.emplace(key, std::move(wanted));
  return {key, 0, length};
}

void SharedRegions::forget(const TcpRegion& region) {
  std::erase_if(by_key_, [&](const auto& each) { return each.second.region == &region; });
}

Target SharedRegions::target(const FrameHeader& header) const {
  const bool writes = header.type == FrameType::kWrite;
  const auto found = by_key_.find(header.key);
  if (found == by_key_.end() || (writes && !found->second.writable)) return {};
  const Shared& shared = found->second;
  const MutableByteSpan memory = shared.region->bytes();
  if (header.offset > memory.size() || header.length > memory.size() - header.offset) return {};
  Target target{.pieces = Pieces(memory.subspan(header.offset, header.length)),
                .region = shared.region};
  if (writes && shared.check != nullptr) {
    if (!shared.check->may_write(header.offset, header.length)) return {};
    target.guard = {shared.check, shared.check->revision(), header.offset, header.length};
  }
  return target;
}

bool SharedRegions::present(const FrameHeader& header, const GrantContent& content) const {
  const auto found = by_key_.find(header.key);
  if (found == by_key_.end() || found->second.check == nullptr) return false;
  return found->second.check->present({.id = GrantId{header.id},
                                       .offset = header.offset,
                                       .length = content.length,
                                       .proof_low = content.proof_low,
                                       .proof_high = content.proof_high});
}

}  // namespace stdchk::transport::tcp
