#include "bench/measuring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "core/base/clock.h"
#include "core/base/limits.h"

namespace stdchk::bench {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2 * limits::kMiB;

void write_words(MutableByteSpan bytes, std::uint64_t seed, std::size_t step) {
  Prng random(seed);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size(); at += step) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

double seconds(clockid_t clock) {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) give_up("a process has ended");
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void* map(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) give_up("there is no memory for " + std::to_string(bytes) + " bytes");
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

void give_up(const std::string& what) {
  std::fprintf(stderr, "bench: %s\n", what.c_str());
  std::exit(1);
}

void give_up_call(const std::string& what) { give_up(what + ": " + std::strerror(errno)); }

void fill_random(MutableByteSpan bytes, std::uint64_t seed) {
  write_words(bytes, seed, sizeof(std::uint64_t));
}

void change_pages(MutableByteSpan bytes, std::uint64_t seed) { write_words(bytes, seed, kPage); }

void write_new_file(const std::string& path, ByteSpan bytes, bool is_synced) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd < 0) give_up_call("cannot create " + path);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t piece = std::min<std::size_t>(limits::kMiB, bytes.size() - at);
    const ssize_t done = ::write(fd, bytes.data() + at, piece);
    if (done < 0) give_up_call("cannot write " + path);
    at += static_cast<std::size_t>(done);
  }
  if (is_synced && ::fsync(fd) != 0) give_up_call("cannot sync " + path);
  if (::close(fd) != 0) give_up_call("cannot close " + path);
}

MutableByteSpan random_memory(std::size_t bytes, std::uint64_t seed) {
  const auto address = reinterpret_cast<std::uintptr_t>(map(bytes + kHugePage));
  const std::uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  const MutableByteSpan memory(reinterpret_cast<std::byte*>(aligned), bytes);
  fill_random(memory, seed);
  return memory;
}

// Adds with vectors that every x86-64 and aarch64 has, so that memory is the limit, not addition.
std::uint64_t sum_words(ByteSpan bytes) {
  using Vector __attribute__((vector_size(16))) = std::uint64_t;
  constexpr std::size_t kVectors = 8;
  constexpr std::size_t kPrefetchBytes = 2048;
  Vector sums[kVectors] = {};
  for (std::size_t i = 0; i + sizeof(sums) <= bytes.size(); i += sizeof(sums)) {
    const std::byte* at = bytes.data() + i;
    __builtin_prefetch(at + kPrefetchBytes);
    __builtin_prefetch(at + kPrefetchBytes + sizeof(sums) / 2);
    const auto* vectors = reinterpret_cast<const Vector*>(at);
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) sums[v] += vectors[v];
  }
  std::uint64_t total = 0;
  for (const Vector& sum : sums) total += sum[0] + sum[1];
  return total;
}

void warm_free_memory(std::size_t bytes) {
  void* const memory = map(bytes);
  write_words({static_cast<std::byte*>(memory), bytes}, 0, kPage);
  ::munmap(memory, bytes);
}

double cpu_seconds(pid_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  if (pid != 0 && ::clock_getcpuclockid(pid, &clock) != 0) {
    give_up("there is no process " + std::to_string(pid));
  }
  return seconds(clock);
}

double cpu_seconds(const std::vector<pid_t>& pids) {
  double all = 0;
  for (const pid_t pid : pids) all += cpu_seconds(pid);
  return all;
}

double thread_seconds() { return seconds(CLOCK_THREAD_CPUTIME_ID); }

double thread_rate(std::size_t bytes, const std::function<void()>& work) {
  const double before = thread_seconds();
  work();
  return static_cast<double>(bytes) / (thread_seconds() - before) / 1e9;
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  if (!(file >> all >> resident)) give_up("/proc/self/statm cannot be read");
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

double wall_seconds() { return seconds(CLOCK_REALTIME); }

}  // namespace stdchk::bench
