// Measures one-sided writes of 1 MiB through transport.h between two processes, and memcpy of the
// same buffers in the same run as the ceiling of any transport on one host.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/limits.h"
#include "core/reactor.h"
#include "transport/factory.h"

namespace stdchk {
namespace {

using namespace std::chrono_literals;
using transport::Endpoint;
using transport::Link;

constexpr std::size_t kBlock = limits::kMiB;
constexpr std::size_t kBlocks = 256;  ///< of each buffer, more than the caches hold
constexpr std::size_t kDepth = 16;
constexpr std::size_t kWritesPerRun = 4096;
constexpr int kRuns = 5;

struct Hello {
  std::array<char, 256> address{};
  transport::RemoteKey key;
};

/// Huge pages where there are any, touched, filled with bytes that cannot be compressed.
MutableByteSpan make_buffer(std::uint64_t seed) {
  const std::size_t bytes = kBlock * kBlocks;
  void* const memory = ::mmap(nullptr, bytes + 2 * limits::kMiB, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {};
  const std::uintptr_t aligned =
      (reinterpret_cast<std::uintptr_t>(memory) + 2 * limits::kMiB - 1) & ~(2 * limits::kMiB - 1);
  auto* const data = reinterpret_cast<std::byte*>(aligned);
  ::madvise(data, bytes, MADV_HUGEPAGE);
  Prng random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t number = random.next();
    std::memcpy(data + i, &number, 8);
  }
  return {data, bytes};
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds_since(Time start, const Clock& clock) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

class Target final : public transport::AcceptHandler, public transport::LinkHandler {
 public:
  void on_accept(std::unique_ptr<Link> link) override {
    link_ = std::move(link);
    link_->set_handler(*this);
  }
  void on_connected(Link&) override {}
  void on_message(Link&, ByteSpan) override {}
  void on_closed(Link&, Error) override { closed = true; }
  void drop() { link_.reset(); }
  bool closed = false;

 private:
  std::unique_ptr<Link> link_;
};

/// The process that is written to. Its CPU time goes into the socket at its end.
int run_target(const std::string& kind, int socket) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  SystemClock clock;
  Reactor reactor(clock);
  const MutableByteSpan memory = make_buffer(1);
  auto endpoint = transport::open_endpoint(kind, {.clock = &clock});
  if (!endpoint.has_value()) return 1;
  auto region = (*endpoint)->register_memory(memory);
  Target target;
  if (!region.has_value() || !(*endpoint)->listen(target).has_value()) return 1;
  reactor.add(**endpoint);
  Hello hello;
  (*endpoint)->address().copy(hello.address.data(), hello.address.size() - 1);
  hello.key = (*region)->remote_key();
  const double before = cpu_seconds();
  if (::write(socket, &hello, sizeof(hello)) != sizeof(hello)) return 1;
  const Time end = clock.now() + 120s;
  while (!target.closed && clock.now() < end) reactor.run_once(1s);
  const double used = cpu_seconds() - before;
  target.drop();
  reactor.remove(**endpoint);
  return ::write(socket, &used, sizeof(used)) == sizeof(used) ? 0 : 1;
}

class Writer final : public transport::LinkHandler {
 public:
  struct Slot final : transport::Operation {
    Writer* writer = nullptr;
    void complete(Status status) override {
      if (!status.has_value()) writer->failed = true;
      ++writer->completed;
      writer->fill(*this);
    }
  };

  void on_connected(Link&) override { up = true; }
  void on_message(Link&, ByteSpan) override {}
  void on_closed(Link&, Error) override { failed = true; }

  void fill(Slot& slot) {
    if (started == kWritesPerRun || failed) return;
    const std::size_t at = (started % kBlocks) * kBlock;
    const std::array pieces{transport::LocalPiece{memory.data() + at, kBlock, region}};
    if (link->write(pieces, key, at, slot).has_value()) {
      ++started;
    } else {
      failed = true;  // the depth is far below every queue
    }
  }

  /// GB/s of one run; 0: failed.
  double run(Reactor& reactor) {
    started = completed = 0;
    const Time start = reactor.clock().now();
    for (Slot& slot : slots) fill(slot);
    while (completed < kWritesPerRun && !failed) reactor.run_once(1s);
    const double seconds = seconds_since(start, reactor.clock());
    return failed ? 0 : static_cast<double>(kWritesPerRun * kBlock) / seconds / 1e9;
  }

  std::unique_ptr<Link> link;
  transport::RemoteKey key;
  MutableByteSpan memory;
  const transport::MemoryRegion* region = nullptr;
  std::array<Slot, kDepth> slots;
  std::size_t started = 0;
  std::size_t completed = 0;
  bool up = false;
  bool failed = false;
};

double memcpy_rate(MutableByteSpan from, const Clock& clock) {
  const MutableByteSpan to = make_buffer(3);
  const Time start = clock.now();
  for (std::size_t i = 0; i < kWritesPerRun; ++i) {
    const std::size_t at = (i % kBlocks) * kBlock;
    std::memcpy(to.data() + at, from.data() + at, kBlock);
    asm volatile("" ::: "memory");
  }
  return static_cast<double>(kWritesPerRun * kBlock) / seconds_since(start, clock) / 1e9;
}

int run_writer(const std::string& kind, int socket) {
  SystemClock clock;
  Reactor reactor(clock);
  Hello hello;
  if (::read(socket, &hello, sizeof(hello)) != sizeof(hello)) return 1;
  Writer writer;
  writer.memory = make_buffer(2);
  writer.key = hello.key;
  for (auto& slot : writer.slots) slot.writer = &writer;
  auto endpoint = transport::open_endpoint(kind, {.clock = &clock});
  if (!endpoint.has_value()) return 1;
  auto region = (*endpoint)->register_memory(writer.memory);
  if (!region.has_value()) return 1;
  writer.region = region->get();
  reactor.add(**endpoint);
  auto link = (*endpoint)->connect(hello.address.data(), writer, limits::kConnectDeadline);
  if (!link.has_value()) return 1;
  writer.link = std::move(*link);
  while (!writer.up && !writer.failed) reactor.run_once(1s);
  const double before = cpu_seconds();
  std::vector<double> rates;
  for (int i = 0; i <= kRuns; ++i) rates.push_back(writer.run(reactor));
  const double used = cpu_seconds() - before;
  rates.erase(rates.begin());  // the first one warms up
  writer.link.reset();
  reactor.remove(**endpoint);
  double target_used = 0;
  if (writer.failed || ::read(socket, &target_used, sizeof(target_used)) != sizeof(target_used)) {
    return 1;
  }
  const double copy = memcpy_rate(writer.memory, clock);
  const double gigabytes = static_cast<double>((kRuns + 1) * kWritesPerRun * kBlock) / 1e9;
  fmt::print(
      "{{\"transport\": \"{}\", \"block_bytes\": {}, \"depth\": {}, \"runs\": {}, "
      "\"write_gb_s\": {:.3f}, \"memcpy_gb_s\": {:.3f}, \"ratio_to_memcpy\": {:.3f}, "
      "\"writer_cpu_s_per_gb\": {:.3f}, \"target_cpu_s_per_gb\": {:.3f}}}\n",
      kind, kBlock, kDepth, kRuns, median(rates), copy, median(rates) / copy, used / gigabytes,
      target_used / gigabytes);
  return 0;
}

int run(const std::string& kind) {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) return 1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(sockets[0]);
    ::_exit(run_target(kind, sockets[1]));
  }
  ::close(sockets[1]);
  const int result = run_writer(kind, sockets[0]);
  ::kill(pid, SIGTERM);
  ::waitpid(pid, nullptr, 0);
  return result;
}

}  // namespace
}  // namespace stdchk

int main(int count, char** arguments) { return stdchk::run(count > 1 ? arguments[1] : "ofi:tcp"); }
