#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/base/problem.h"
#include "core/base/result.h"
#include "core/runtime/reactor.h"
#include "fork/process/population.h"
#include "fork/process/process_handle.h"

namespace stdchk::fork {

/// An ImageSegment is a range of the parent's memory and its place in the image.
struct ImageSegment {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
};

/// An ImagePlace says where other hosts find an image.
struct ImagePlace {
  char path[512] = {};
  char pool_path[512] = {};
  char pager[108] = {};
};

/// Lays parts of memory out one behind the other.
std::vector<ImageSegment> image_of(const std::vector<MemoryPart>& parts);

/// An ImageWriter copies a frozen copy's memory into a file, beside the reactor. Pages of zeros
/// become holes. The file is committed when `done` gets a success.
///
/// Owns: a thread. Not the file: the caller removes it.
/// Threads: the reactor's; `done` is called there, once, while the object lives.
class ImageWriter {
 public:
  using Done = std::function<void(const Outcome<void>& written)>;
  ImageWriter(Reactor& reactor, Process frozen, std::vector<ImageSegment> segments,
              std::string path, Done done);
  ~ImageWriter();
  ImageWriter(const ImageWriter&) = delete;
  ImageWriter& operator=(const ImageWriter&) = delete;

 private:
  Outcome<void> write() const;

  Reactor& reactor_;
  const Process frozen_;
  const std::vector<ImageSegment> segments_;
  const std::string path_;
  const Done done_;
  std::atomic<bool> stopped_{false};
  Lifetime lifetime_;
  ThreadExecutor thread_;
};

/// An ImageReader supplies blocks of a parent's memory from its image: by the page server's
/// mapping, or by read(2). open_image() checks the file. An image without segments is not opened.
///
/// Owns: the open image, which stays readable when its name goes; threads.
/// Threads: the reactor's; calls come back there, while the object lives.
class ImageReader {
 public:
  struct Calls {
    /// Once, first.
    std::function<void(const Outcome<void>& opened)> on_open;
    std::function<void(std::uint64_t address, std::string_view bytes)> on_block;
    /// A block cannot be read, also not later.
    std::function<void(const Problem& why)> on_lost;
  };
  ImageReader(Reactor& reactor, const ImagePlace& place, std::vector<ImageSegment> segments,
              Calls calls);
  ~ImageReader();
  ImageReader(const ImageReader&) = delete;
  ImageReader& operator=(const ImageReader&) = delete;

  void fetch(std::uint64_t address, std::uint64_t bytes);

 private:
  Outcome<void> open();
  Result<std::string> read(std::uint64_t address, std::uint64_t bytes) const;
  Status read_at(std::uint64_t offset, char* to, std::size_t bytes) const;
  void post(std::function<void()> call);

  Reactor& reactor_;
  const ImagePlace place_;
  const std::vector<ImageSegment> segments_;
  const Calls calls_;
  std::atomic<bool> stopped_{false};
  Descriptor file_;               ///< set by the first work of threads_
  const char* mapped_ = nullptr;  ///< of the page server
  Lifetime lifetime_;
  std::unique_ptr<ThreadExecutor> threads_;
};

}  // namespace stdchk::fork
