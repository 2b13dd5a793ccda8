#include "fuse/receive_buffer.h"

#include <linux/fuse.h>

#include <cstdlib>

#include "core/base/assert.h"
#include "core/base/limits.h"

namespace stdchk::mount {
namespace {

/// Bytes before the data of a write request. The kernel wants room for the longest request.
constexpr std::size_t kHeadBytes = sizeof(fuse_in_header) + sizeof(fuse_write_in);
constexpr std::size_t kWriteBytesMax = limits::kMiB;
constexpr std::size_t kOwnBytes = kWriteBytesMax + 4096;
constexpr std::size_t kPageBytes = 4096;

thread_local ReceiveBuffer* t_mine = nullptr;

}  // namespace

ReceiveBuffer::ReceiveBuffer(client::Filesystem* window_of) : window_of_(window_of) {
  t_mine = this;
}

ReceiveBuffer::~ReceiveBuffer() {
  t_mine = nullptr;
  std::free(own_);
}

ReceiveBuffer* ReceiveBuffer::of_this_thread() { return t_mine; }

void* ReceiveBuffer::prepare() {
  if (window_of_ != nullptr && !slot_) {
    if (auto borrowed = client::borrow_buffer(*window_of_)) {
      slot_ = std::move(*borrowed);
      bool fits = slot_.data().size() == kWriteBytesMax && slot_.headroom().size() >= kHeadBytes;
      if (!fits) {
        slot_.give_back();
        window_of_ = nullptr;  // chunks of this pool have another length
      }
    }
  }
  if (slot_) {
    capacity_ = kHeadBytes + kWriteBytesMax;
    return slot_.data().data() - kHeadBytes;
  }
  if (own_ == nullptr) {
    own_ = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kOwnBytes));
    STDCHK_ASSERT(own_ != nullptr);  // with less than 1 MiB no request could even be refused
  }
  capacity_ = kOwnBytes;
  return own_;
}

Status ReceiveBuffer::write(client::File& file, std::uint64_t offset, ByteSpan bytes) {
  if (!slot_) return file.write(offset, bytes);
  return client::write_adopted(file, slot_, offset, bytes);
}

}  // namespace stdchk::mount
