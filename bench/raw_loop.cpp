#include "bench/raw_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/chunk/naming.h"

namespace stdchk::bench {

RawLoop::~RawLoop() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGTERM);
    ::waitpid(pid, nullptr, 0);
  }
}

double RawLoop::run(ByteSpan image, std::uint64_t total, bool checksums) {
  const std::size_t chunk = shape_.chunk_bytes;
  const std::size_t slots = shape_.window_bytes / chunk;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i * chunk < total; ++i) {
    const std::size_t slot = static_cast<std::size_t>(i % slots);
    wait_for_slot(slot);
    if (!image.empty()) {
      std::memcpy(slot_data(slot), image.data() + i * chunk % image.size(), chunk);
    }
    if (checksums) checksums_ ^= crc32c(0, ByteSpan(slot_data(slot), chunk));
    write(slot, static_cast<std::size_t>(i % shape_.targets),
          i / shape_.targets * chunk % shape_.arena_bytes);
  }
  wait_for_all();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(total) / 1e9 / took.count();
}

std::vector<int> RawLoop::fork_targets(const std::function<void(int, MutableByteSpan)>& target) {
  std::vector<int> sockets;
  for (std::size_t i = 0; i < shape_.targets; ++i) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) give_up("no socket");
    const pid_t pid = ::fork();
    if (pid < 0) give_up("cannot fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      target(pair[1], random_memory(shape_.arena_bytes, i));
      ::_exit(0);
    }
    ::close(pair[1]);
    pids_.push_back(pid);
    sockets.push_back(pair[0]);
  }
  window_ = random_memory(shape_.window_bytes, shape_.targets);
  return sockets;
}

namespace {

// ---- process_vm_writev --------------------------------------------------------------------------

class SharedMemoryLoop final : public RawLoop {
 public:
  explicit SharedMemoryLoop(const RawShape& shape) : RawLoop(shape) {
    const auto target = [](int socket, MutableByteSpan arena) {
      tell(socket, arena.data());
      ::pause();  // writes need no action here
    };
    for (const int socket : fork_targets(target)) arenas_.push_back(hear<std::byte*>(socket));
  }

 private:
  void wait_for_slot(std::size_t) override {}
  void wait_for_all() override {}
  void write(std::size_t slot, std::size_t target, std::uint64_t offset) override {
    const iovec local{slot_data(slot), shape_.chunk_bytes};
    const iovec remote{arenas_[target] + offset, shape_.chunk_bytes};
    const ssize_t written = ::process_vm_writev(targets()[target], &local, 1, &remote, 1, 0);
    if (written != static_cast<ssize_t>(shape_.chunk_bytes)) give_up("process_vm_writev failed");
  }

  std::vector<std::byte*> arenas_;
};

// ---- a TCP stream -------------------------------------------------------------------------------

class StreamLoop final : public RawLoop {
 public:
  explicit StreamLoop(const RawShape& shape) : RawLoop(shape) {
    const std::vector<int> sockets = fork_targets(
        [&](int socket, MutableByteSpan arena) { receive(socket, arena, shape.chunk_bytes); });
    for (const int socket : sockets) {
      const auto address = hear<sockaddr_in>(socket);
      connections_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
      const auto* const to = reinterpret_cast<const sockaddr*>(&address);
      if (::connect(connections_.back(), to, sizeof(address)) != 0) give_up("cannot connect");
      const int on = 1;
      ::setsockopt(connections_.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
  }

 private:
  /// Receives chunks. A header of 1 precedes a chunk; 0 asks for an answer once all earlier chunks
  /// have arrived.
  static void receive(int socket, MutableByteSpan arena, std::size_t chunk_bytes) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener, name, length) != 0 || ::listen(listener, 1) != 0) give_up("no listener");
    ::getsockname(listener, name, &length);
    tell(socket, address);
    const int connection = ::accept(listener, nullptr, nullptr);
    std::uint64_t at = 0;
    for (;;) {
      const auto header = hear<std::uint32_t>(connection);
      if (header == 0) {
        tell(connection, char{1});
        continue;
      }
      for (std::size_t have = 0; have < chunk_bytes;) {
        const ssize_t got =
            ::recv(connection, arena.data() + at + have, chunk_bytes - have, MSG_WAITALL);
        if (got <= 0) return;
        have += static_cast<std::size_t>(got);
      }
      at = (at + chunk_bytes) % arena.size();
    }
  }

  void wait_for_slot(std::size_t) override {}
  void wait_for_all() override {
    for (const int connection : connections_) tell(connection, std::uint32_t{0});
    for (const int connection : connections_) hear<char>(connection);
  }
  void write(std::size_t slot, std::size_t target, std::uint64_t) override {
    std::uint32_t header = 1;
    std::array<iovec, 2> pieces{iovec{&header, sizeof(header)},
                                iovec{slot_data(slot), shape_.chunk_bytes}};
    const std::size_t bytes = sizeof(header) + shape_.chunk_bytes;
    // A blocking socket takes all bytes.
    if (::writev(connections_[target], pieces.data(), 2) != static_cast<ssize_t>(bytes)) {
      give_up("a stream has ended");
    }
  }

  std::vector<int> connections_;
};

}  // namespace

std::unique_ptr<RawLoop> RawLoop::start(const std::string& kind, const RawShape& shape) {
  if (kind == "shm") return std::make_unique<SharedMemoryLoop>(shape);
  if (kind == "tcp" || kind == "stream") return std::make_unique<StreamLoop>(shape);
  if (kind == "verbs" || kind == "ofi:verbs") return start_verbs_loop(shape);
  give_up("there is no raw loop for " + kind);
}

}  // namespace stdchk::bench
