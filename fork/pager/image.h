#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "fork/pager/block_table.h"
#include "fork/pager/source.h"
#include "fork/pager/touch_order.h"

namespace stdchk::pager {

/// The longest piece that is fetched at once: 256 KiB.
inline constexpr std::uint64_t kPieceBlocks = 16;

/// Counts of all images, for metrics.
struct ImageCounts {
  std::atomic<std::uint64_t> faults{0};          ///< that a clone waited for
  std::atomic<std::uint64_t> faults_present{0};  ///< of these: the bytes had come meanwhile
  std::atomic<std::uint64_t> bytes_wanted{0};    ///< fetched for a fault
  std::atomic<std::uint64_t> bytes_ahead{0};     ///< fetched ahead
  std::atomic<std::uint64_t> bytes_holes{0};     ///< of holes, which are not fetched
  std::atomic<std::uint64_t> bytes_evicted{0};
  std::atomic<std::uint64_t> failures{0};       ///< pieces that could not be fetched
  std::atomic<std::uint64_t> bytes_present{0};  ///< in all memory files now
};

/// A Piece is a buffer of one thread for kPieceBlocks blocks.
using Piece = std::vector<std::byte>;
inline Piece make_piece() { return Piece(kPieceBlocks * kBlockBytes); }

/// An Image is the memory of one image on this host: a memory file (memfd) that clones map
/// privately. It fetches blocks from its source and gives up old ones.
///
/// Owns: the memory file, the table of blocks, the order of touches.
/// Threads: any. The callbacks of Host are called without locks of the image.
/// Errors: a block that cannot be fetched stays absent, and the callers that wait for it get an
/// error. Limits: kImageBytesMax.
class Image : public std::enable_shared_from_this<Image> {
 public:
  struct Host {
    std::function<void(const Waiter&)> wake;
    /// The block cannot be fetched.
    std::function<void(const Image&, const Waiter&, std::uint64_t block, const Error&)> deny;
    /// Fetches the range soon, or never: fetch_ahead() on another thread.
    std::function<void(Image&, const BlockRange&)> later;
    ImageCounts& counts;
  };

  /// With an empty memory file.
  static Result<std::shared_ptr<Image>> create(std::uint64_t id, std::shared_ptr<Source> source,
                                               Host host);
  /// With the memory file of an earlier server.
  static Result<std::shared_ptr<Image>> adopt(std::uint64_t id, std::shared_ptr<Source> source,
                                              Descriptor memory, Host host);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  std::uint64_t id() const { return id_; }
  Source& source() const { return *source_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  int memory() const { return memory_.get(); }
  /// The same file, open for reading only. Clones get this one.
  int readable() const { return readable_.get(); }

  /// Serves a fault on the page at `offset`. Fetches `ahead` blocks from there on, the touched
  /// block first. Returns when the touched block is there, denied, or being fetched by another
  /// thread.
  void fault(const Waiter& waiter, std::uint64_t offset, std::uint32_t ahead, Piece& piece);
  /// Fetches the absent blocks of the range.
  void fetch_ahead(const BlockRange& range, Piece& piece);
  /// Fetches the range. Returns when all its blocks are present.
  Status fetch(const BlockRange& range, Piece& piece);
  void forget(std::uint64_t clone);

  /// Gives up the memory of the blocks that were fetched first. Returns the number of bytes.
  std::uint64_t evict_oldest();
  std::uint64_t present_bytes() const;
  /// Calls `visit` with each absent range.
  void visit_absent(const std::function<void(const BlockRange&)>& visit) const;

  /// Takes the order that an earlier host has recorded.
  void use_order(std::string_view text);
  /// Returns the order recorded by this server. Empty when use_order() gave a longer order.
  std::string new_order() const;

 private:
  Image(std::uint64_t id, std::shared_ptr<Source> source, Descriptor memory, Descriptor readable,
        Host host);
  static Result<std::shared_ptr<Image>> make(std::uint64_t id, std::shared_ptr<Source> source,
                                             Descriptor memory, Host host);
  Status adopt_present();
  Status fill(const BlockRange& range, bool ahead, Piece& piece);
  Status read(const BlockRange& range, bool& is_hole, Piece& piece);
  void plan_ahead(std::uint64_t block, std::uint64_t from, std::uint64_t until);

  const std::uint64_t id_;
  const std::shared_ptr<Source> source_;
  const std::uint64_t size_bytes_;
  const Descriptor memory_;
  const Descriptor readable_;
  const Host host_;

  mutable Mutex mutex_;
  CondVar changed_;  ///< signals the end of a fetch
  BlockTable table_ STDCHK_GUARDED_BY(mutex_);
  TouchOrder touched_ STDCHK_GUARDED_BY(mutex_);
  TouchOrder recorded_ STDCHK_GUARDED_BY(mutex_);  ///< of an earlier host
};

}  // namespace stdchk::pager
