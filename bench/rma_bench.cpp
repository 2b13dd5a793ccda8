// Measures one-sided writes of 1 MiB through transport.h between two processes. They take turns
// with the raw loop of the same kind, a TCP stream and memcpy. Prints JSON: GB/s of each round, and
// CPU seconds per GB at both ends.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measuring.h"
#include "bench/raw_loop.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "transport/choice/factory.h"

namespace stdchk::bench {
namespace {

using namespace std::chrono_literals;
using transport::Link;

constexpr std::size_t kBlock = limits::kMiB;
constexpr std::size_t kBlocks = 256;  ///< blocks of each buffer
constexpr std::size_t kDepth = 16;

struct Hello {
  std::array<char, 256> address{};
};
/// A fixed root secret for both ends. Never use it outside a bench: anyone can know it.
std::shared_ptr<transport::secure::Keyring> keyring() {
  using namespace transport::secure;
  return std::make_shared<Keyring>(Keyring::of_root({}, new_member(Role::kManager)));
}

Result<std::unique_ptr<transport::Endpoint>> open(const std::string& kind, Clock& clock,
                                                  bool trusted_network = false) {
  transport::EndpointOptions options{.clock = &clock, .trusted_network = trusted_network};
  if (kind == "tcp")
    options.identity = keyring();  // the other transports are measured without a handshake
  return transport::open_endpoint(kind, options);
}

class Target final : public transport::AcceptHandler, public transport::LinkHandler {
 public:
  void on_accept(std::unique_ptr<Link> link) override {
    link_ = std::move(link);
    link_->set_handler(*this);
    const transport::RemoteKey key = link_->share(*region);
    if (!link_->send(std::as_bytes(std::span(&key, 1))).has_value()) give_up("the key is not sent");
  }
  void on_connected(Link&) override {}
  void on_message(Link&, ByteSpan) override {}
  void on_closed(Link&, Error) override { closed = true; }
  void drop() { link_.reset(); }
  const transport::MemoryRegion* region = nullptr;
  bool closed = false;

 private:
  std::unique_ptr<Link> link_;
};

/// The process that receives the writes.
int run_target(const std::string& kind, int socket, bool trusted_network) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  SystemClock clock;
  Reactor reactor(clock);
  const MutableByteSpan memory = random_memory(kBlock * kBlocks, 1);
  auto endpoint = open(kind, clock, trusted_network);
  if (!endpoint.has_value()) return 1;
  auto region = (*endpoint)->register_memory(memory);
  Target target;
  if (!region.has_value()) return 1;
  target.region = region->get();
  if (!(*endpoint)->listen(target).has_value()) return 1;
  reactor.add(**endpoint);
  Hello hello;
  (*endpoint)->address().copy(hello.address.data(), hello.address.size() - 1);
  if (::write(socket, &hello, sizeof(hello)) != sizeof(hello)) return 1;
  while (!target.closed) reactor.run_once(1s);
  target.drop();
  reactor.remove(**endpoint);
  return 0;
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

  void on_connected(Link&) override {}
  void on_message(Link&, ByteSpan message) override {
    up = message.size() == sizeof key;
    if (up) std::memcpy(&key, message.data(), sizeof key);
  }
  void on_closed(Link&, Error) override { failed = true; }

  void fill(Slot& slot) {
    if (started == wanted || failed) return;
    const std::size_t from = (started % kDepth) * kBlock;  // the window's slots, as in the raw loop
    const std::size_t to = (started % kBlocks) * kBlock;
    const std::array pieces{transport::LocalPiece{memory.data() + from, kBlock, region}};
    if (link->write(pieces, key, to, slot).has_value()) {
      ++started;
    } else {
      failed = true;  // the depth is far below every queue's length
    }
  }

  void run(Reactor& reactor, std::size_t writes) {
    started = completed = 0;
    wanted = writes;
    for (Slot& slot : slots) fill(slot);
    while (completed < wanted && !failed) reactor.run_once(1s);
    if (failed) give_up("a write through transport.h failed");
  }

  std::unique_ptr<Link> link;
  transport::RemoteKey key;
  MutableByteSpan memory;
  const transport::MemoryRegion* region = nullptr;
  std::array<Slot, kDepth> slots;
  std::size_t wanted = 0;
  std::size_t started = 0;
  std::size_t completed = 0;
  bool up = false;
  bool failed = false;
};

struct Settings {
  std::string transport = "tcp";
  bool trusted_network = false;
  std::uint64_t bytes = 2 * limits::kGiB;
  std::uint32_t rounds = 5;
};

using Figures = std::map<std::string, std::map<std::string, std::vector<double>>>;

/// Runs `work`, which moves `bytes`. Records its rate, and the CPU time here and in the processes
/// `others`.
void measure(Figures& figures, bool counts, const std::string& what, std::uint64_t bytes,
             const std::vector<pid_t>& others, const std::function<void()>& work) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const double here = cpu_seconds(0);
  const double there = cpu_seconds(others);
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!counts) return;
  figures["gb_per_s"][what].push_back(gigabytes / took.count());
  figures["writer_cpu_s_per_gb"][what].push_back((cpu_seconds(0) - here) / gigabytes);
  figures["target_cpu_s_per_gb"][what].push_back((cpu_seconds(others) - there) / gigabytes);
}

void copy_blocks(MutableByteSpan to, ByteSpan from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kBlock) {
    std::memcpy(to.data() + at % to.size(), from.data() + at % from.size(), kBlock);
    asm volatile("" ::: "memory");
  }
}

int run_writer(const Settings& settings, int socket, pid_t target, RawLoop& raw, RawLoop& stream) {
  SystemClock clock;
  Reactor reactor(clock);
  Hello hello;
  if (::read(socket, &hello, sizeof(hello)) != sizeof(hello)) give_up("the target has ended");
  Writer writer;
  writer.memory = random_memory(kBlock * kDepth, 2);
  const MutableByteSpan copied_to = random_memory(kBlock * kBlocks, 3);
  for (auto& slot : writer.slots) slot.writer = &writer;
  auto endpoint = open(settings.transport, clock);
  if (!endpoint.has_value()) give_up("there is no transport " + settings.transport);
  auto region = (*endpoint)->register_memory(writer.memory);
  if (!region.has_value()) give_up(describe(region.error()));
  writer.region = region->get();
  reactor.add(**endpoint);
  auto link = (*endpoint)->connect(hello.address.data(), writer, limits::kConnectDeadline);
  if (!link.has_value()) give_up(describe(link.error()));
  writer.link = std::move(*link);
  while (!writer.up && !writer.failed) reactor.run_once(1s);
  if (writer.failed) give_up("the target was not reached");

  Figures figures;
  const std::uint64_t bytes = settings.bytes;
  for (std::uint32_t round = 0; round <= settings.rounds; ++round) {
    const auto add = [&](const char* what, const std::vector<pid_t>& others, const auto& work) {
      measure(figures, round > 0, what, bytes, others, work);  // the first round warms up
    };
    add("raw_write", raw.targets(), [&] { raw.run({}, bytes); });
    add("raw_copy_and_write", raw.targets(), [&] { raw.run(copied_to, bytes); });
    add("transport", {target}, [&] { writer.run(reactor, bytes / kBlock); });
    add("tcp_stream", stream.targets(), [&] { stream.run({}, bytes); });
    add("memcpy", {}, [&] { copy_blocks(copied_to, writer.memory, bytes); });
  }
  writer.link.reset();
  reactor.remove(**endpoint);
  nlohmann::json out(figures);
  out["transport"] = settings.transport;
  out["taken"] = wall_seconds();
  std::printf("%s\n", out.dump().c_str());
  return 0;
}

int run(const Settings& settings) {
  RawShape shape{.targets = 1, .window_bytes = kDepth * kBlock};
  for (const auto& port : transport::rdma_ports()) {
    if (!port.active || port.addresses.empty()) continue;
    shape.device_address = port.addresses.front();  // the address that the transport uses, too
    break;
  }
  const auto raw = RawLoop::start(settings.transport, shape);
  const auto stream = RawLoop::start("stream", shape);
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) return 1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(sockets[0]);
    ::_exit(run_target(settings.transport, sockets[1], settings.trusted_network));
  }
  ::close(sockets[1]);
  const int result = run_writer(settings, sockets[0], pid, *raw, *stream);
  ::kill(pid, SIGTERM);
  ::waitpid(pid, nullptr, 0);
  return result;
}

}  // namespace
}  // namespace stdchk::bench

int main(int argc, char** argv) {
  stdchk::bench::Settings settings;
  stdchk::Options options("rma-bench", "Measures writes through transport.h beside a raw loop.");
  options.choice("--transport", settings.transport, {"tcp", "shm", "verbs", "ofi:verbs"},
                 "how bytes move");
  options.flag("--trusted-network", settings.trusted_network, "content in clear, over tcp");
  options.size("--bytes", settings.bytes, 1u << 20, std::uint64_t{1} << 40, "of each round");
  options.count("--rounds", settings.rounds, 1, 1000, "that count; one more goes before them");
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  return stdchk::bench::run(settings);
}
