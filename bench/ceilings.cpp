#include "bench/ceilings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/clock.h"
#include "core/chunk/naming.h"

namespace stdchk::bench {
namespace {

constexpr const char* kWhere = "bench.ceilings";
constexpr std::uint64_t kBlock = 1 << 20;
constexpr std::uint64_t kHugePage = 2 << 20;

/// A Buffer is anonymous memory, with huge pages requested or forbidden.
class Buffer {
 public:
  static Result<Buffer> map(std::uint64_t bytes, bool huge) {
    Buffer buffer;
    buffer.length_ = bytes + kHugePage;
    void* mapping = ::mmap(nullptr, buffer.length_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return fail_errno(kWhere);
    buffer.mapping_ = static_cast<std::byte*>(mapping);
    const auto rest = reinterpret_cast<std::uintptr_t>(mapping) % kHugePage;
    buffer.bytes_ = {buffer.mapping_ + (kHugePage - rest) % kHugePage, bytes};
    ::madvise(buffer.bytes_.data(), bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return buffer;
  }
  Buffer(Buffer&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        length_(other.length_),
        bytes_(other.bytes_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(length_, other.length_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (mapping_ != nullptr) ::munmap(mapping_, length_);
  }
  MutableByteSpan bytes() const { return bytes_; }
  void touch() const {
    for (std::uint64_t at = 0; at < bytes_.size(); at += 4096) {
      reinterpret_cast<volatile std::byte&>(bytes_[at]) = std::byte{1};
    }
  }

 private:
  Buffer() = default;
  std::byte* mapping_ = nullptr;
  std::uint64_t length_ = 0;
  MutableByteSpan bytes_;
};

/// Keeps the compiler from removing code that fills or reads `bytes`.
void use(const void* bytes) { asm volatile("" : : "r"(bytes) : "memory"); }

/// A step returns the duration of its timed part.
using Step = std::function<Result<Duration>()>;

Result<Ceiling> measure(const CeilingOptions& options, std::string name, std::string measures,
                        const Step& step) {
  std::vector<double> rates;
  for (int i = 0; i <= options.repetitions; ++i) {
    STDCHK_ASSIGN(const Duration taken, step());
    const auto ns = static_cast<double>(std::max<Duration::rep>(taken.count(), 1));
    if (i > 0) rates.push_back(static_cast<double>(options.bytes) / ns);  // bytes per ns equal GB/s
  }
  std::ranges::sort(rates);
  return Ceiling{std::move(name), std::move(measures), rates.front(), rates[rates.size() / 2],
                 rates.back()};
}

Result<Duration> time_first_touch(std::uint64_t bytes, bool huge) {
  const SystemClock clock;
  STDCHK_ASSIGN(const Buffer buffer, Buffer::map(bytes, huge));
  const Time start = clock.now();
  buffer.touch();
  return clock.now() - start;
}

Result<Duration> time_new_file(const CeilingOptions& options, ByteSpan source) {
  const SystemClock clock;
  const int fd = ::open(options.tmpfs.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(kWhere);
  const Time start = clock.now();
  for (std::uint64_t at = 0; at < source.size();) {
    const std::uint64_t block = std::min<std::uint64_t>(kBlock, source.size() - at);
    const ssize_t written = ::write(fd, source.data() + at, block);
    if (written <= 0) {
      const int error = errno;
      ::close(fd);
      return fail(Code::kSystem, kWhere, error);
    }
    at += static_cast<std::uint64_t>(written);
  }
  const Duration taken = clock.now() - start;
  ::close(fd);
  return taken;
}

Duration time_copy(MutableByteSpan to, ByteSpan from, std::uint64_t block) {
  const SystemClock clock;
  const Time start = clock.now();
  for (std::uint64_t at = 0; at < from.size(); at += block) {
    std::memcpy(to.data() + at, from.data() + at, std::min<std::uint64_t>(block, from.size() - at));
  }
  use(to.data());
  return clock.now() - start;
}

Duration time_crc(ByteSpan from) {
  const SystemClock clock;
  const Time start = clock.now();
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < from.size(); at += kBlock) {
    crc ^= crc32c(0, from.subspan(at, std::min<std::uint64_t>(kBlock, from.size() - at)));
  }
  use(&crc);
  return clock.now() - start;
}

}  // namespace

Result<std::vector<Ceiling>> measure_ceilings(const CeilingOptions& options) {
  if (options.bytes < kHugePage || options.repetitions < 1) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  STDCHK_ASSIGN(const Buffer source, Buffer::map(options.bytes, true));
  STDCHK_ASSIGN(const Buffer target, Buffer::map(options.bytes, true));
  Prng random(1);  // random, so that no layer profits from equal bytes
  for (std::uint64_t at = 0; at + 8 <= options.bytes; at += 8) {
    const std::uint64_t number = random.next();
    std::memcpy(source.bytes().data() + at, &number, sizeof(number));
  }
  target.touch();

  std::vector<Ceiling> ceilings;
  const auto add = [&](const char* name, const char* measures, const Step& step) -> Status {
    STDCHK_ASSIGN(Ceiling ceiling, measure(options, name, measures, step));
    ceilings.push_back(std::move(ceiling));
    return {};
  };
  STDCHK_TRY(add("memcpy_1m", "Copies memory on huge pages in blocks of 1 MiB.", [&] {
    return Result<Duration>(time_copy(target.bytes(), source.bytes(), kBlock));
  }));
  STDCHK_TRY(add(
      "memcpy_streaming",
      "Copies memory on huge pages in one memcpy call, so long that the C library "
      "stores past the caches.",
      [&] { return Result<Duration>(time_copy(target.bytes(), source.bytes(), options.bytes)); }));
  STDCHK_TRY(add("first_touch_4k", "Touches new memory on pages of 4 KiB.",
                 [&] { return time_first_touch(options.bytes, false); }));
  STDCHK_TRY(add("first_touch_huge", "Touches new memory on transparent huge pages.",
                 [&] { return time_first_touch(options.bytes, true); }));
  STDCHK_TRY(add("tmpfs_new_file_1m", "Writes a new file on tmpfs by write() of 1 MiB.",
                 [&] { return time_new_file(options, source.bytes()); }));
  STDCHK_TRY(add("crc32c_1m", "Computes CRC32C over blocks of 1 MiB that are not in a cache.",
                 [&] { return Result<Duration>(time_crc(source.bytes())); }));
  return ceilings;
}

nlohmann::json to_json(const std::vector<Ceiling>& ceilings) {
  nlohmann::json all = nlohmann::json::object();
  for (const Ceiling& ceiling : ceilings) {
    all[ceiling.name] = {{"min", ceiling.min},
                         {"median", ceiling.median},
                         {"max", ceiling.max},
                         {"unit", "GB/s"},
                         {"measures", ceiling.measures}};
  }
  return all;
}

}  // namespace stdchk::bench
