#include "tools/lab/similarity.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <unordered_set>
#include <utility>

#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/chunk/chunker.h"
#include "core/chunk/naming.h"
#include "core/chunk/window_chunking.h"

namespace stdchk::tools {
namespace {

using Ends = std::vector<std::uint64_t>;
using Seconds = std::chrono::duration<double>;

constexpr const char* kOurs = "stdchk";
constexpr const char* kFixed = "FsCH";
/// Below this share a series is not worth naming.
constexpr double kWorthNaming = 0.02;
/// The share that content-defined chunks must find beyond fixed chunks.
constexpr double kWorthCutting = 0.02;

/// An Image is a file that is mapped for the object's life.
class Image {
 public:
  static Outcome<Image> open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd < 0 || ::fstat(fd, &status) != 0) {
      const int why = errno;
      if (fd >= 0) ::close(fd);
      return problem("{}: {}", path, std::strerror(why));
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* memory = nullptr;
    if (!S_ISREG(status.st_mode)) {
      ::close(fd);
      return problem("{} is no file; name the images themselves, in the order of their timesteps",
                     path);
    }
    if (size > 0) memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int why = errno;
    ::close(fd);
    if (memory == MAP_FAILED) {
      return problem("{}: {}", path, std::strerror(why));
    }
    return Image(memory, size);
  }
  Image(Image&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_) {}
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  Image& operator=(Image&&) = delete;
  ~Image() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
  }
  ByteSpan bytes() const { return {static_cast<const std::byte*>(memory_), size_}; }

 private:
  Image(void* memory, std::size_t size) : memory_(memory), size_(size) {}
  void* memory_;
  std::size_t size_;
};

/// A Series takes one image after the other, cut in one way, and counts equal chunks.
class Series {
 public:
  explicit Series(Similarity what) : result_(std::move(what)) {}

  /// `cutting`: the seconds needed to find the ends.
  void add(ByteSpan image, const Ends& ends, Seconds cutting) {
    const auto started = std::chrono::steady_clock::now();
    name(image, ends);
    spent_ += cutting + Seconds(std::chrono::steady_clock::now() - started);
    std::uint64_t start = 0;
    std::uint64_t found = 0;
    std::unordered_set<ChunkName> mine;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::uint64_t length = ends[i] - start;
      start = ends[i];
      if (before_.contains(names_[i])) found += length;
      mine.insert(names_[i]);
      result_.chunk_min = chunks_ == 0 ? length : std::min(result_.chunk_min, length);
      result_.chunk_max = std::max(result_.chunk_max, length);
      ++chunks_;
    }
    if (images_ > 0 && !image.empty()) {
      shares_ += static_cast<double>(found) / static_cast<double>(image.size());
    }
    ++images_;
    result_.image_bytes += image.size();
    before_ = std::move(mine);
  }

  Similarity result() const {
    Similarity result = result_;
    const auto bytes = static_cast<double>(result.image_bytes);
    if (images_ > 1) result.similarity = shares_ / static_cast<double>(images_ - 1);
    if (spent_.count() > 0) result.bytes_per_s = bytes / spent_.count();
    if (chunks_ > 0) result.chunk_mean = bytes / static_cast<double>(chunks_);
    return result;
  }

 private:
  /// Names chunks in groups of about 1 MiB, as the write path does.
  void name(ByteSpan image, const Ends& ends) {
    names_.resize(ends.size());
    std::vector<ChunkPieces> group;
    std::uint64_t start = 0;
    std::uint64_t group_start = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      group.push_back({image.subspan(start, ends[i] - start), ByteSpan()});
      start = ends[i];
      if (i + 1 < ends.size() && start - group_start < limits::kMiB) continue;
      namer_.name(group, std::span(names_).subspan(first, group.size()));
      group.clear();
      group_start = start;
      first = i + 1;
    }
  }

  Similarity result_;
  Namer namer_;
  std::vector<ChunkName> names_;
  std::unordered_set<ChunkName> before_;
  double shares_ = 0;
  std::size_t images_ = 0;
  std::uint64_t chunks_ = 0;
  Seconds spent_{};
};

template <class Work>
Seconds timed(Work work) {
  const auto started = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - started;
}

/// A Work tracks progress in bytes; bytes of slow techniques count several times.
class Work {
 public:
  Work(double all, const std::function<void(double)>& progress) : all_(all), progress_(progress) {}
  void done(double bytes) {
    done_ += bytes;
    progress_(std::min(1.0, done_ / all_));
  }

 private:
  double all_;
  double done_ = 0;
  const std::function<void(double)>& progress_;
};

Ends fixed_ends(std::uint64_t size, std::uint64_t chunk) {
  Ends ends;
  for (std::uint64_t end = 0; end < size;) {
    end = std::min(end + chunk, size);
    ends.push_back(end);
  }
  return ends;
}

Ends boundaries_of_stdchk(ByteSpan image, std::uint32_t mean) {
  Chunker chunker(ChunkSizes::around(mean));
  Ends ends;
  chunker.push(image, ends);
  if (chunker.chunk_start() < image.size()) ends.push_back(image.size());
  return ends;
}

Similarity of_chunk(const char* technique, std::uint64_t bytes, const char* prefix) {
  Similarity what;
  what.technique = technique;
  what.chunk_bytes = bytes;
  what.parameters = prefix + format_bytes(bytes);
  return what;
}

/// A combination of hash, window and overlap; its hashes serve for all k.
struct Windows {
  WindowHash hash;
  std::uint32_t window;
  bool overlaps;
  bool is_slow() const { return hash == WindowHash::kSha1 || overlaps; }
  std::size_t step() const { return overlaps ? 1 : window; }
  double work() const { return overlaps ? (hash == WindowHash::kSha1 ? 2000 : 20) : 100; }
};

std::vector<Windows> all_windows(const std::vector<std::uint32_t>& sizes) {
  std::vector<Windows> all;
  for (const WindowHash hash : {WindowHash::kSha1, WindowHash::kRabin}) {
    for (const bool overlaps : {true, false}) {
      for (const std::uint32_t window : sizes) all.push_back({hash, window, overlaps});
    }
  }
  return all;
}

std::deque<Series> series_of(const Windows& windows, const std::vector<std::uint32_t>& bits) {
  std::deque<Series> all;
  for (const std::uint32_t k : bits) {
    Similarity what;
    what.technique =
        fmt::format("CbCH {}, {}", windows.hash == WindowHash::kSha1 ? "SHA-1" : "Rabin",
                    windows.overlaps ? "overlap" : "no overlap");
    what.window_bytes = windows.window;
    what.bits = k;
    what.parameters = fmt::format("m {}, k {}", windows.window, k);
    all.emplace_back(std::move(what));
  }
  return all;
}

}  // namespace

Outcome<std::vector<Similarity>> measure_similarity(const SimilarityOptions& options,
                                                    const std::function<void(double)>& progress) {
  std::vector<Image> images;
  for (const std::string& path : options.files) {
    auto image = Image::open(path);
    if (!image) return problem(image.error());
    images.push_back(std::move(*image));
  }
  const std::vector<Windows> windows = all_windows(options.windows);
  const auto part = [&](const Image& image, bool slow) {
    const ByteSpan bytes = image.bytes();
    if (!slow || options.sample_bytes == 0) return bytes;
    return bytes.first(std::min<std::size_t>(bytes.size(), options.sample_bytes));
  };
  constexpr std::uint64_t kFixedBytes[] = {limits::kKiB, 256 * limits::kKiB, limits::kMiB};
  constexpr std::uint32_t kOurMeans[] = {64 * limits::kKiB, 256 * limits::kKiB, limits::kMiB};
  double all_work = 0;
  for (const Image& image : images) {
    all_work += 6 * static_cast<double>(image.bytes().size());
    for (const Windows& each : windows) {
      all_work += each.work() * static_cast<double>(part(image, each.is_slow()).size());
    }
  }
  Work work(std::max(all_work, 1.0), progress);
  std::vector<Similarity> results;
  const auto run = [&](Similarity what, const std::function<Ends(ByteSpan)>& cut) {
    Series series(std::move(what));
    for (const Image& image : images) {
      Ends ends;
      const Seconds took = timed([&] { ends = cut(image.bytes()); });
      series.add(image.bytes(), ends, took);
      work.done(static_cast<double>(image.bytes().size()));
    }
    results.push_back(series.result());
  };
  for (const std::uint64_t bytes : kFixedBytes) {
    run(of_chunk(kFixed, bytes, ""),
        [bytes](ByteSpan image) { return fixed_ends(image.size(), bytes); });
  }
  for (const Windows& each : windows) {
    std::deque<Series> all = series_of(each, options.bits);
    for (const Image& image : images) {
      const ByteSpan bytes = part(image, each.is_slow());
      std::vector<std::uint16_t> hashes;
      const Seconds hashing =
          timed([&] { hashes = window_hashes(bytes, each.hash, each.window, each.step()); });
      for (std::size_t i = 0; i < all.size(); ++i) {
        Ends ends;
        const Seconds cutting = timed([&] {
          ends = window_ends(hashes, each.window, each.step(), options.bits[i], bytes.size());
        });
        all[i].add(bytes, ends, hashing + cutting);
      }
      work.done(each.work() * static_cast<double>(bytes.size()));
    }
    for (const Series& series : all) results.push_back(series.result());
  }
  for (const std::uint32_t mean : kOurMeans) {
    run(of_chunk(kOurs, mean, "mean "),
        [mean](ByteSpan image) { return boundaries_of_stdchk(image, mean); });
  }
  return results;
}

Advice advise_chunking(const std::vector<Similarity>& measured) {
  const auto found = [&](std::string_view technique, std::uint64_t chunk_bytes) {
    const auto at = std::ranges::find_if(measured, [&](const Similarity& each) {
      return each.technique == technique && each.chunk_bytes == chunk_bytes;
    });
    return at == measured.end() ? 0.0 : at->similarity;
  };
  // Compares the write path's choices for chunks of 1 MiB: fixed chunks, or content-defined chunks
  // of at most 1 MiB.
  const double fixed = found(kFixed, limits::kMiB);
  const double ours = found(kOurs, 256 * limits::kKiB);
  if (std::max(fixed, ours) < kWorthNaming) {
    return {
        "none",
        fmt::format("Less than {:.0f} % of an image is in the image before it: naming chunks costs "
                    "time and saves nothing.",
                    100 * kWorthNaming)};
  }
  if (ours >= fixed + kWorthCutting) {
    return {"content",
            fmt::format(
                "Content-defined chunks find {:.1f} % of an image in the image before it, fixed "
                "chunks {:.1f} %.",
                100 * ours, 100 * fixed)};
  }
  return {"fixed",
          fmt::format("Chunks of fixed length find {:.1f} % of an image in the image before it, "
                      "content-defined chunks {:.1f} %: chunks of fixed length suffice.",
                      100 * fixed, 100 * ours)};
}

}  // namespace stdchk::tools
