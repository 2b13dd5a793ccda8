#pragma once

#include <rdma/fi_domain.h>

#include <memory>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::transport::ofi {

/// A MessageBuffer holds one message. If the provider needs it (FI_MR_LOCAL), its memory is
/// registered and thereby pinned.
///
/// Owns: memory and registration. Must be destroyed before the domain.
class MessageBuffer {
 public:
  MessageBuffer() = default;
  /// If `domain` is nullptr, the memory is not registered.
  static Result<MessageBuffer> make(fid_domain* domain, std::size_t bytes);
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }
  void* descriptor() const { return mr_ == nullptr ? nullptr : fi_mr_desc(mr_.get()); }

 private:
  struct CloseMr {
    void operator()(fid_mr* mr) const { fi_close(&mr->fid); }
  };
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
  std::unique_ptr<fid_mr, CloseMr> mr_;  ///< destroyed before the memory
};

}  // namespace stdchk::transport::ofi
