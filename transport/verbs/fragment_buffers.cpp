#include "transport/verbs/fragment_buffers.h"

#include <sys/mman.h>

#include <cerrno>

#include "transport/verbs/fragment.h"
#include "transport/verbs/locked_memory.h"

namespace stdchk::transport::verbs {
namespace {

constexpr std::size_t kBuffersPerBlock = 64;
constexpr int kRemoteAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

Result<ibv_mr*> register_with(ibv_pd& pd, MutableByteSpan memory) {
  ibv_mr* const mr = ::ibv_reg_mr(&pd, memory.data(), memory.size(), kRemoteAccess);
  if (mr != nullptr) return mr;
  // In a container a process may hold CAP_IPC_LOCK without effect.
  if (errno == ENOMEM && locked_memory().limit_bytes != ~std::uint64_t{0}) {
    return fail(Code::kMemlock, "verbs.register", ENOMEM);
  }
  return fail_errno("verbs.register ibv_reg_mr");
}

void FragmentBuffers::clear() {
  for (const Block& block : blocks_) {
    ::ibv_dereg_mr(block.mr);
    ::munmap(block.memory.data(), block.memory.size());
  }
  blocks_.clear();
  buffers_.clear();
  idle_.clear();
}

Result<Buffer*> FragmentBuffers::take(ibv_pd& pd) {
  if (idle_.empty()) STDCHK_TRY(add_block(pd));
  Buffer* const buffer = idle_.back();
  idle_.pop_back();
  return buffer;
}

Status FragmentBuffers::add_block(ibv_pd& pd) {
  constexpr std::size_t kBytes = kBuffersPerBlock * kFragmentBytes;
  STDCHK_TRY(locked_memory().check(kBytes, "verbs.buffers"));
  void* const memory =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno("verbs.buffers mmap");
  const MutableByteSpan bytes(static_cast<std::byte*>(memory), kBytes);
  const auto mr = register_with(pd, bytes);
  if (!mr.has_value()) {
    ::munmap(memory, kBytes);
    return fail(mr.error());
  }
  blocks_.push_back({bytes, *mr});
  for (std::size_t at = 0; at < kBytes; at += kFragmentBytes) {
    buffers_.push_back({bytes.data() + at, (*mr)->lkey});
    idle_.push_back(&buffers_.back());
  }
  return {};
}

}  // namespace stdchk::transport::verbs
