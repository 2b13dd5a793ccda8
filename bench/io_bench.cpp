// Measures plain POSIX input and output of one file system as an application sees it: writing a new
// image (OT: file size / (open until close returns)), reading one, creating empty files, stat.
// Prints one JSON object a line with the seconds of each run.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/units.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "io-bench: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Incompressible bytes in huge pages where there are any, touched before anything is timed.
class Image {
 public:
  Image(std::size_t bytes, std::uint64_t seed) : bytes_(bytes) {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("cannot get memory for the image");
    ::madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<char*>(memory);
    refill(seed);
  }
  ~Image() { ::munmap(data_, bytes_); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  void refill(std::uint64_t seed) {
    stdchk::Prng random(seed);
    for (std::size_t at = 0; at + 8 <= bytes_; at += 8) {
      const std::uint64_t word = random.next();
      std::memcpy(data_ + at, &word, 8);
    }
  }
  /// Another image that shares no chunk of 64 KiB or more with the one before, at little cost.
  void change(std::uint64_t seed) {
    stdchk::Prng random(seed);
    for (std::size_t at = 0; at + 8 <= bytes_; at += 4096) {
      const std::uint64_t word = random.next();
      std::memcpy(data_ + at, &word, 8);
    }
  }
  const char* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  char* data_ = nullptr;
  std::size_t bytes_;
};

struct Arguments {
  std::string directory;
  std::string size = "1G";
  std::string block = "1M";
  std::string prefix = "bench";
  unsigned runs = 5;
  unsigned writers = 1;
  unsigned files = 2000;
  bool direct = false;
  bool keep = false;
  bool same = false;
  std::uint64_t seed = 1;
};

double write_file(const std::string& path, const Image& image, std::size_t block, bool direct) {
  const auto start = Clock::now();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0644);
  if (fd < 0) die("cannot create " + path);
  for (std::size_t at = 0; at < image.size();) {
    const ssize_t done = ::write(fd, image.data() + at, std::min(block, image.size() - at));
    if (done < 0) die("cannot write " + path);
    at += static_cast<std::size_t>(done);
  }
  if (::close(fd) != 0) die("cannot close " + path);
  return seconds_since(start);
}

double read_file(const std::string& path, std::span<char> buffer, bool direct) {
  const auto start = Clock::now();
  const int fd = ::open(path.c_str(), O_RDONLY | (direct ? O_DIRECT : 0));
  if (fd < 0) die("cannot open " + path);
  for (;;) {
    const ssize_t done = ::read(fd, buffer.data(), buffer.size());
    if (done < 0) die("cannot read " + path);
    if (done == 0) break;
  }
  ::close(fd);
  return seconds_since(start);
}

void print(const char* what, const Arguments& arguments, double amount, const char* unit,
           const std::vector<double>& seconds) {
  std::printf(
      "{\"what\":\"%s\",\"directory\":\"%s\",\"block\":\"%s\",\"writers\":%u,\"unit\":\"%s\","
      "\"values\":[",
      what, arguments.directory.c_str(), arguments.block.c_str(), arguments.writers, unit);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    std::printf("%s%.6g", i == 0 ? "" : ",", amount / seconds[i]);
  }
  std::printf("]}\n");
}

std::string image_path(const Arguments& arguments, unsigned writer, unsigned run) {
  return arguments.directory + "/" + arguments.prefix + ".N" + std::to_string(writer) + ".T" +
         std::to_string(run);
}

/// The first run is not counted: it warms what is warmed once.
void bench_write(const Arguments& arguments, std::size_t size, std::size_t block) {
  std::vector<std::unique_ptr<Image>> images;
  for (unsigned w = 0; w < arguments.writers; ++w) {
    images.push_back(std::make_unique<Image>(size, arguments.seed * 1000 + w));
  }
  std::vector<double> seconds;
  for (unsigned run = 0; run <= arguments.runs; ++run) {
    if (run > 0 && !arguments.same) {
      for (unsigned w = 0; w < arguments.writers; ++w)
        images[w]->change(arguments.seed + run * 97 + w);
    }
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (unsigned w = 0; w < arguments.writers; ++w) {
      threads.emplace_back([&, w] {
        write_file(image_path(arguments, w, run), *images[w], block, arguments.direct);
      });
    }
    for (auto& thread : threads) thread.join();
    if (run > 0) seconds.push_back(seconds_since(start));
    if (!arguments.keep) {
      for (unsigned w = 0; w < arguments.writers; ++w)
        ::unlink(image_path(arguments, w, run).c_str());
    }
  }
  print("write", arguments, static_cast<double>(size) * arguments.writers / 1e9, "GB/s", seconds);
}

void bench_read(const Arguments& arguments, std::size_t size, std::size_t block) {
  // As an image is read into the pages of a process. From any other address the kernel needs one
  // page more than a request has, and asks twice for each call.
  const std::unique_ptr<char, decltype(&std::free)> buffer(
      static_cast<char*>(
          std::aligned_alloc(kPageBytes, (block + kPageBytes - 1) / kPageBytes * kPageBytes)),
      std::free);
  if (buffer == nullptr) die("cannot get memory for a block");
  std::memset(buffer.get(), 0, block);
  std::vector<double> seconds;
  for (unsigned run = 0; run <= arguments.runs; ++run) {
    const double took =
        read_file(image_path(arguments, 0, run), {buffer.get(), block}, arguments.direct);
    if (run > 0) seconds.push_back(took);
  }
  print("read", arguments, static_cast<double>(size) / 1e9, "GB/s", seconds);
}

void bench_metadata(const Arguments& arguments) {
  std::vector<double> create, look, remove;
  for (unsigned run = 0; run < arguments.runs; ++run) {
    auto path = [&](unsigned i) {
      return arguments.directory + "/meta." + std::to_string(run) + "." + std::to_string(i);
    };
    auto start = Clock::now();
    for (unsigned i = 0; i < arguments.files; ++i) {
      const int fd = ::open(path(i).c_str(), O_WRONLY | O_CREAT, 0644);
      if (fd < 0 || ::close(fd) != 0) die("cannot create " + path(i));
    }
    create.push_back(seconds_since(start));
    start = Clock::now();
    for (unsigned i = 0; i < arguments.files; ++i) {
      struct stat attributes {};
      if (::stat(path(i).c_str(), &attributes) != 0) die("cannot stat " + path(i));
    }
    look.push_back(seconds_since(start));
    start = Clock::now();
    for (unsigned i = 0; i < arguments.files; ++i) {
      if (::unlink(path(i).c_str()) != 0) die("cannot unlink " + path(i));
    }
    remove.push_back(seconds_since(start));
  }
  print("create", arguments, arguments.files, "files/s", create);
  print("stat", arguments, arguments.files, "files/s", look);
  print("unlink", arguments, arguments.files, "files/s", remove);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"measures POSIX I/O of the file system below a directory"};
  Arguments arguments;
  std::string mode;
  app.add_option("mode", mode)
      ->required()
      ->check(CLI::IsMember({"write", "read", "metadata", "dump"}));
  app.add_option("directory", arguments.directory)->required();
  app.add_option("--size", arguments.size, "of one image");
  app.add_option("--block", arguments.block, "of one write or read call");
  app.add_option("--runs", arguments.runs, "counted runs");
  app.add_option("--writers", arguments.writers, "threads that write an image each");
  app.add_option("--files", arguments.files, "of the metadata runs");
  app.add_option("--prefix", arguments.prefix, "application part of the images' names");
  app.add_option("--seed", arguments.seed, "of the images' bytes");
  app.add_flag("--direct", arguments.direct, "open with O_DIRECT");
  app.add_flag("--keep", arguments.keep, "leave the written images in place");
  app.add_flag("--same", arguments.same, "write the same bytes in each run");
  CLI11_PARSE(app, argc, argv);
  const auto size = stdchk::parse_bytes(arguments.size);
  const auto block = stdchk::parse_bytes(arguments.block);
  if (!size || !block || *block == 0) {
    std::fprintf(stderr, "io-bench: --size and --block are sizes such as 1G or 64k\n");
    return 2;
  }
  if (mode == "dump") {  // the bytes that would be written, for a check that they do not compress
    const Image image(*size, arguments.seed);
    return std::fwrite(image.data(), 1, image.size(), stdout) == image.size() ? 0 : 1;
  }
  if (mode == "write") bench_write(arguments, *size, *block);
  if (mode == "read") bench_read(arguments, *size, *block);
  if (mode == "metadata") bench_metadata(arguments);
  return 0;
}
