#include "bench/raw_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
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

#include "core/naming.h"

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
      ::pause();  // nothing is to be done for a write
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
  /// A header of 1 precedes a chunk; 0 asks to be told when all before it has come.
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
    // A blocking socket takes all of it.
    if (::writev(connections_[target], pieces.data(), 2) != static_cast<ssize_t>(bytes)) {
      give_up("a stream has ended");
    }
  }

  std::vector<int> connections_;
};

// ---- libfabric ----------------------------------------------------------------------------------

void check(ssize_t result, const char* what) {
  if (result < 0) give_up(std::string(what) + ": " + fi_strerror(static_cast<int>(-result)));
}

/// The objects of one process. The end of the process frees them.
struct Fabric {
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_cq* cq = nullptr;
  fid_mr* mr = nullptr;

  explicit Fabric(MutableByteSpan memory) {
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_MSG;
    hints->fabric_attr->prov_name = ::strdup("tcp");
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    check(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "0", FI_SOURCE, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fi_eq_attr eq_attr{.size = 64, .wait_obj = FI_WAIT_UNSPEC};
    check(fi_eq_open(fabric, &eq_attr, &eq, nullptr), "fi_eq_open");
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_cq_attr cq_attr{.size = 1024, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_UNSPEC};
    check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
    check(fi_mr_reg(domain, memory.data(), memory.size(),
                    FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, nullptr),
          "fi_mr_reg");
  }

  fid_ep* make_endpoint(fi_info* of) const {
    fid_ep* ep = nullptr;
    check(fi_endpoint(domain, of, &ep, nullptr), "fi_endpoint");
    check(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_enable(ep), "fi_enable");
    return ep;
  }

  fi_eq_cm_entry wait_for_event(std::uint32_t wanted) const {
    std::uint32_t event = 0;
    fi_eq_cm_entry entry{};
    ssize_t got = 0;
    do {
      got = fi_eq_sread(eq, &event, &entry, sizeof(entry), 1000, 0);
    } while (got == -FI_EAGAIN || got == -FI_EINTR);
    if (got < 0 || event != wanted) give_up("libfabric: a connection failed");
    return entry;
  }
};

struct FabricAddress {
  sockaddr_in name{};
  std::uint64_t base = 0;
  std::uint64_t key = 0;
};

class FabricLoop final : public RawLoop {
 public:
  explicit FabricLoop(const RawShape& shape) : RawLoop(shape) {
    const std::vector<int> sockets = fork_targets(take_writes);
    fabric_ = std::make_unique<Fabric>(window_);
    slots_.resize(shape.window_bytes / shape.chunk_bytes);
    for (const int socket : sockets) {
      Target target;
      target.address = hear<FabricAddress>(socket);
      fi_info* const info = fi_dupinfo(fabric_->info);
      std::free(info->src_addr);
      info->src_addr = nullptr;
      info->src_addrlen = 0;
      target.ep = fabric_->make_endpoint(info);
      check(fi_connect(target.ep, &target.address.name, nullptr, 0), "fi_connect");
      fabric_->wait_for_event(FI_CONNECTED);
      fi_freeinfo(info);
      targets_.push_back(target);
    }
  }

 private:
  struct Target {
    FabricAddress address;
    fid_ep* ep = nullptr;
  };
  struct Slot {
    fi_context2 context{};  ///< first: a completion names it
    bool busy = false;
  };

  static void take_writes(int socket, MutableByteSpan arena) {
    const Fabric fabric(arena);
    fid_pep* listener = nullptr;
    check(fi_passive_ep(fabric.fabric, fabric.info, &listener, nullptr), "fi_passive_ep");
    check(fi_pep_bind(listener, &fabric.eq->fid, 0), "fi_pep_bind");
    check(fi_listen(listener), "fi_listen");
    FabricAddress address;
    std::size_t length = sizeof(address.name);
    check(fi_getname(&listener->fid, &address.name, &length), "fi_getname");
    const bool is_virtual = (fabric.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    address.base = is_virtual ? reinterpret_cast<std::uint64_t>(arena.data()) : 0;
    address.key = fi_mr_key(fabric.mr);
    tell(socket, address);
    const fi_eq_cm_entry request = fabric.wait_for_event(FI_CONNREQ);
    fid_ep* const ep = fabric.make_endpoint(request.info);
    check(fi_accept(ep, nullptr, 0), "fi_accept");
    fabric.wait_for_event(FI_CONNECTED);
    for (;;) {  // the provider moves bytes in these calls
      fi_cq_entry entry{};
      fi_cq_sread(fabric.cq, &entry, 1, nullptr, 1000);
    }
  }

  void reap(bool may_sleep) {
    std::array<fi_cq_entry, 32> done;
    const ssize_t got = may_sleep
                            ? fi_cq_sread(fabric_->cq, done.data(), done.size(), nullptr, 1000)
                            : fi_cq_read(fabric_->cq, done.data(), done.size());
    if (got == -FI_EAGAIN || got == -FI_EINTR) return;
    check(got, "fi_cq_read");
    for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) {
      static_cast<Slot*>(done[i].op_context)->busy = false;
      --in_flight_;
    }
  }

  void wait_for_slot(std::size_t slot) override {
    while (slots_[slot].busy) reap(true);
  }
  void wait_for_all() override {
    while (in_flight_ > 0) reap(true);
  }
  void write(std::size_t slot, std::size_t target, std::uint64_t offset) override {
    const iovec local{slot_data(slot), shape_.chunk_bytes};
    void* descriptor = fi_mr_desc(fabric_->mr);
    const FabricAddress& to = targets_[target].address;
    const fi_rma_iov remote{.addr = to.base + offset, .len = shape_.chunk_bytes, .key = to.key};
    const fi_msg_rma message{.msg_iov = &local,
                             .desc = &descriptor,
                             .iov_count = 1,
                             .addr = FI_ADDR_UNSPEC,
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = &slots_[slot],
                             .data = 0};
    constexpr std::uint64_t kFlags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    ssize_t result = 0;
    while ((result = fi_writemsg(targets_[target].ep, &message, kFlags)) == -FI_EAGAIN) reap(true);
    check(result, "fi_writemsg");
    slots_[slot].busy = true;
    ++in_flight_;
    reap(false);
  }

  std::unique_ptr<Fabric> fabric_;
  std::vector<Target> targets_;
  std::vector<Slot> slots_;
  std::size_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<RawLoop> RawLoop::start(const std::string& kind, const RawShape& shape) {
  if (kind == "shm") return std::make_unique<SharedMemoryLoop>(shape);
  if (kind == "stream") return std::make_unique<StreamLoop>(shape);
  if (kind == "ofi:tcp") return std::make_unique<FabricLoop>(shape);
  if (kind == "verbs" || kind == "ofi:verbs") return start_verbs_loop(shape);
  give_up("there is no raw loop for " + kind);
}

}  // namespace stdchk::bench
