#pragma once

#include <array>
#include <cstdint>

namespace stdchk::pager {

/// A RunDetector tells how many blocks to fetch when a clone touches an absent block. A jump
/// fetches the least number. Each fault that continues a run doubles the number, up to a limit.
///
/// It follows kRuns runs at a time, because the threads of a clone may read several parts of an
/// image.
///
/// Threads: one at a time.
class RunDetector {
 public:
  static constexpr std::size_t kRuns = 8;

  /// In blocks. Requires 1 <= least <= most.
  RunDetector(std::uint32_t least, std::uint32_t most) : least_(least), most_(most) {}

  /// Returns the number of blocks to fetch from `block` on, `block` included.
  std::uint32_t touched(std::uint64_t block) {
    ++now_;
    Run* oldest = runs_.data();
    for (Run& run : runs_) {
      if (run.window > 0 && block >= run.from && block <= run.until) {
        const std::uint32_t window = run.window < most_ / 2 ? run.window * 2 : most_;
        run = {block + 1, block + window, window, now_};
        return window;
      }
      if (run.used < oldest->used) oldest = &run;
    }
    *oldest = {block + 1, block + least_, least_, now_};
    return least_;
  }

 private:
  struct Run {
    std::uint64_t from = 0;    ///< lowest block that continues the run
    std::uint64_t until = 0;   ///< first block behind the window
    std::uint32_t window = 0;  ///< blocks fetched last; 0: not in use
    std::uint64_t used = 0;
  };

  const std::uint32_t least_;
  const std::uint32_t most_;
  std::array<Run, kRuns> runs_{};
  std::uint64_t now_ = 0;
};

}  // namespace stdchk::pager
