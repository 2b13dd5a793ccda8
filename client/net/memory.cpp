#include "client/net/memory.h"

#include <sys/mman.h>

#include "core/base/log.h"

namespace stdchk::client {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Result<std::unique_ptr<Memory>> Memory::map(std::size_t bytes) {
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // Maps one huge page more than asked, so that the start can be aligned. The rest is unmapped.
  void* mapped = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return fail(Code::kNoMemory, "client.memory", errno);
  auto* start = static_cast<std::byte*>(mapped);
  const std::size_t skip =
      (kHugePage - reinterpret_cast<std::uintptr_t>(start) % kHugePage) % kHugePage;
  if (skip > 0) ::munmap(start, skip);
  if (kHugePage - skip > 0) ::munmap(start + skip + bytes, kHugePage - skip);
  auto memory = std::unique_ptr<Memory>(new Memory);
  memory->bytes_ = MutableByteSpan(start + skip, bytes);
  ::madvise(start + skip, bytes, MADV_HUGEPAGE);
  // Touches each page now, so that no write of an application waits for page faults.
  for (std::size_t at = 0; at < bytes; at += 4096) start[skip + at] = std::byte{0};
  return memory;
}

Status Memory::register_at(transport::Endpoint& endpoint) {
  STDCHK_ASSIGN(auto region, endpoint.register_memory(bytes_));
  regions_.emplace_back(&endpoint, std::move(region));
  return {};
}

Result<std::unique_ptr<Memory>> Memory::create(std::size_t bytes,
                                               const std::vector<transport::Endpoint*>& endpoints) {
  STDCHK_ASSIGN(auto memory, map(bytes));
  for (transport::Endpoint* endpoint : endpoints) STDCHK_TRY(memory->register_at(*endpoint));
  return memory;
}

Result<std::unique_ptr<Memory>> Memory::create_where_possible(
    std::size_t bytes, std::vector<transport::Endpoint*>& endpoints) {
  STDCHK_ASSIGN(auto memory, map(bytes));
  Status failed;
  std::erase_if(endpoints, [&](transport::Endpoint* endpoint) {
    const Status registered = memory->register_at(*endpoint);
    if (registered) return false;
    failed = registered;
    log::warning("transport {} is not used: {}", endpoint->capabilities().name,
                 describe(registered.error()));
    return true;
  });
  if (endpoints.empty() && !failed) return fail(failed.error());
  return memory;
}

Memory::~Memory() {
  regions_.clear();
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

const transport::MemoryRegion* Memory::region(const transport::Endpoint& endpoint) const {
  for (const auto& [owner, region] : regions_) {
    if (owner == &endpoint) return region.get();
  }
  return nullptr;
}

}  // namespace stdchk::client
