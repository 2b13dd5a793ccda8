#include "core/chunk/leaf_engine.h"

#if STDCHK_HAVE_IPSEC_MB

#include <intel-ipsec-mb.h>

#include "core/base/log.h"

namespace stdchk {
namespace {

struct FreeManager {
  void operator()(IMB_MGR* manager) const { free_mb_mgr(manager); }
};
using Manager = std::unique_ptr<IMB_MGR, FreeManager>;

/// A MultibufferEngine gives each leaf to a lane of Intel's multi-buffer library, which chooses the
/// widest vectors that the processor supports.
///
/// Errors: when the library refuses a job, for which no case is known, the
/// engine changes to OpenSSL.
class MultibufferEngine final : public LeafEngine {
 public:
  MultibufferEngine(Manager manager, std::string_view name)
      : manager_(std::move(manager)), name_(name) {}

  std::string_view name() const override { return usable_ ? name_ : openssl_->name(); }

  void digest(std::span<const ByteSpan> leaves, std::span<Sha256Digest> digests) override {
    // Few leaves would leave most lanes empty: then OpenSSL with the processor's SHA instructions
    // is faster.
    if (!usable_ || leaves.size() < kLeavesMin || !digest_in_lanes(leaves, digests)) {
      openssl_->digest(leaves, digests);
    }
  }

 private:
  static constexpr std::size_t kLeavesMin = 6;

  bool digest_in_lanes(std::span<const ByteSpan> leaves, std::span<Sha256Digest> digests) {
    std::size_t done = 0;
    const auto finish = [&](const IMB_JOB* job) {
      if (job != nullptr && job->status == IMB_STATUS_COMPLETED) ++done;
    };
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const ByteSpan leaf = leaves[i];
      IMB_JOB* job = IMB_GET_NEXT_JOB(manager_.get());
      job->src = reinterpret_cast<const std::uint8_t*>(leaf.data());
      job->hash_start_src_offset_in_bytes = 0;
      job->msg_len_to_hash_in_bytes = leaf.size();
      job->auth_tag_output = reinterpret_cast<std::uint8_t*>(digests[i].data());
      job->auth_tag_output_len_in_bytes = digests[i].size();
      job->hash_alg = IMB_AUTH_SHA_256;
      job->cipher_mode = IMB_CIPHER_NULL;
      job->cipher_direction = IMB_DIR_ENCRYPT;
      job->chain_order = IMB_ORDER_HASH_CIPHER;
      finish(IMB_SUBMIT_JOB_NOCHECK(manager_.get()));
      while (const IMB_JOB* completed = IMB_GET_COMPLETED_JOB(manager_.get())) finish(completed);
    }
    while (const IMB_JOB* flushed = IMB_FLUSH_JOB(manager_.get())) finish(flushed);
    if (done == digests.size()) return true;
    usable_ = false;
    log::warning("hashing in vector lanes failed; going on with OpenSSL, which is slower");
    return false;
  }

  Manager manager_;
  std::string_view name_;
  std::unique_ptr<LeafEngine> openssl_ = make_openssl_engine();
  bool usable_ = true;
};

}  // namespace

std::unique_ptr<LeafEngine> make_multibuffer_engine() {
  Manager manager(alloc_mb_mgr(0));
  if (manager == nullptr) return nullptr;
  IMB_ARCH arch = IMB_ARCH_NONE;
  init_mb_mgr_auto(manager.get(), &arch);
  // With fewer than eight lanes, one stream with SHA instructions is as fast.
  if (arch == IMB_ARCH_AVX512) {
    return std::make_unique<MultibufferEngine>(std::move(manager), "sha256-mb avx512");
  }
  if (arch == IMB_ARCH_AVX2) {
    return std::make_unique<MultibufferEngine>(std::move(manager), "sha256-mb avx2");
  }
  return nullptr;
}

}  // namespace stdchk

#else

namespace stdchk {

std::unique_ptr<LeafEngine> make_multibuffer_engine() { return nullptr; }

}  // namespace stdchk

#endif
