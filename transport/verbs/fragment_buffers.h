#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::transport::verbs {

/// A Buffer is registered memory for one fragment of a message.
struct Buffer {
  std::byte* data = nullptr;
  std::uint32_t lkey = 0;
};

/// Registers memory, also for remote access. kMemlock: the limit of locked memory is too low.
Result<ibv_mr*> register_with(ibv_pd& pd, MutableByteSpan memory);

/// A FragmentBuffers has the Buffers of one device. It adds a block of Buffers when no Buffer is
/// free.
///
/// Owns: the memory and its registrations. The device must use no Buffer any more at clear().
/// Threads: the reactor's.
class FragmentBuffers {
 public:
  FragmentBuffers() = default;
  ~FragmentBuffers() { clear(); }
  FragmentBuffers(const FragmentBuffers&) = delete;
  FragmentBuffers& operator=(const FragmentBuffers&) = delete;

  Result<Buffer*> take(ibv_pd& pd);
  /// Ends all registrations, which must precede the end of their protection domain.
  void clear();
  void give_back(Buffer& buffer) { idle_.push_back(&buffer); }

 private:
  struct Block {
    MutableByteSpan memory;
    ibv_mr* mr;
  };
  Status add_block(ibv_pd& pd);

  std::vector<Block> blocks_;
  std::deque<Buffer> buffers_;
  std::vector<Buffer*> idle_;
};

}  // namespace stdchk::transport::verbs
