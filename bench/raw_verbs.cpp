// The ceiling of verbs: signalled RDMA writes on one queue pair for each target, and nothing else.
// Does not prove delivery: a completion is the acknowledgement of the target's device.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bench/raw_loop.h"

namespace stdchk::bench {

namespace {

constexpr int kResolveMilliseconds = 5000;
constexpr int kEntriesPerRead = 32;

void check(bool good, const char* what) {
  if (!good) give_up(std::string("verbs: ") + what + ": " + std::strerror(errno));
}

struct MemoryAddress {
  sockaddr_in name{};
  std::uint64_t base = 0;
  std::uint32_t key = 0;
};

sockaddr_in address_of(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  check(::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "address of a device");
  return address;
}
sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

ibv_mr* register_memory(rdma_cm_id& id, MutableByteSpan memory) {
  ibv_mr* const mr = ::ibv_reg_mr(id.pd, memory.data(), memory.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(mr != nullptr, "ibv_reg_mr");
  return mr;
}

/// `queue` null: the queue pair gets its own completion queue.
void make_queue_pair(rdma_cm_id& id, std::size_t depth, ibv_cq* queue) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = attributes.recv_cq = queue;
  attributes.cap = {static_cast<std::uint32_t>(depth), 1, 1, 1, 0};
  check(::rdma_create_qp(&id, id.pd, &attributes) == 0, "rdma_create_qp");
}

class VerbsLoop final : public RawLoop {
 public:
  explicit VerbsLoop(const RawShape& shape)
      : RawLoop(shape), busy_(shape.window_bytes / shape.chunk_bytes) {
    const std::string& host = shape.device_address;
    const std::vector<int> sockets =
        fork_targets([&](int socket, MutableByteSpan arena) { take_writes(host, socket, arena); });
    ::ibv_fork_init();
    for (const int socket : sockets) connect(hear<MemoryAddress>(socket), host);
  }

 private:
  struct Target {
    MemoryAddress address;
    rdma_cm_id* id = nullptr;
    ibv_mr* window = nullptr;
  };

  /// Registers the arena and lets the device work. The process's end frees all resources.
  static void take_writes(const std::string& host, int socket, MutableByteSpan arena) {
    rdma_cm_id* listener = nullptr;
    rdma_cm_id* id = nullptr;
    MemoryAddress address{.name = address_of(host)};
    check(::rdma_create_id(nullptr, &listener, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(::rdma_bind_addr(listener, generic(address.name)) == 0, "rdma_bind_addr");
    check(::rdma_listen(listener, 1) == 0, "rdma_listen");
    // All ids on a device share its protection domain.
    const ibv_mr& mr = *register_memory(*listener, arena);
    address.name.sin_port = ::rdma_get_src_port(listener);
    address.base = reinterpret_cast<std::uint64_t>(arena.data());
    address.key = mr.rkey;
    tell(socket, address);
    check(::rdma_get_request(listener, &id) == 0, "rdma_get_request");
    make_queue_pair(*id, 1, nullptr);
    check(::rdma_accept(id, nullptr) == 0, "rdma_accept");
    hear<char>(socket);  // writes need no action here
  }

  void connect(const MemoryAddress& to, const std::string& host) {
    Target target{.address = to};
    sockaddr_in from = address_of(host);
    sockaddr_in name = to.name;
    check(::rdma_create_id(nullptr, &target.id, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(::rdma_resolve_addr(target.id, generic(from), generic(name), kResolveMilliseconds) == 0,
          "rdma_resolve_addr");
    check(::rdma_resolve_route(target.id, kResolveMilliseconds) == 0, "rdma_resolve_route");
    if (queue_ == nullptr) {
      wakes_ = ::ibv_create_comp_channel(target.id->verbs);
      check(wakes_ != nullptr, "ibv_create_comp_channel");
      queue_ =
          ::ibv_create_cq(target.id->verbs, static_cast<int>(busy_.size()), nullptr, wakes_, 0);
      check(queue_ != nullptr, "ibv_create_cq");
    }
    make_queue_pair(*target.id, busy_.size(), queue_);
    target.window = register_memory(*target.id, window_);
    rdma_conn_param parameters{};
    parameters.retry_count = parameters.rnr_retry_count = 7;
    check(::rdma_connect(target.id, &parameters) == 0, "rdma_connect");
    targets_.push_back(target);
  }

  /// False: no write had completed.
  bool reap() {
    std::array<ibv_wc, kEntriesPerRead> done;
    const int got = ::ibv_poll_cq(queue_, kEntriesPerRead, done.data());
    check(got >= 0, "ibv_poll_cq");
    for (int i = 0; i < got; ++i) {
      const ibv_wc& entry = done[static_cast<std::size_t>(i)];
      if (entry.status != IBV_WC_SUCCESS) give_up(::ibv_wc_status_str(entry.status));
      busy_[entry.wr_id] = false;
      --in_flight_;
    }
    return got > 0;
  }

  void wait_for_any() {
    if (reap()) return;
    check(::ibv_req_notify_cq(queue_, 0) == 0, "ibv_req_notify_cq");
    if (reap()) return;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    check(::ibv_get_cq_event(wakes_, &queue, &context) == 0, "ibv_get_cq_event");
    ::ibv_ack_cq_events(queue, 1);
  }

  void wait_for_slot(std::size_t slot) override {
    while (busy_[slot]) wait_for_any();
  }
  void wait_for_all() override {
    while (in_flight_ > 0) wait_for_any();
  }
  void write(std::size_t slot, std::size_t target, std::uint64_t offset) override {
    const Target& to = targets_[target];
    ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(slot_data(slot)),
                  .length = static_cast<std::uint32_t>(shape_.chunk_bytes),
                  .lkey = to.window->lkey};
    ibv_send_wr request{};
    request.wr_id = slot;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = to.address.base + offset;
    request.wr.rdma.rkey = to.address.key;
    ibv_send_wr* bad = nullptr;
    check(::ibv_post_send(to.id->qp, &request, &bad) == 0, "ibv_post_send");
    busy_[slot] = true;
    ++in_flight_;
    reap();
  }

  std::vector<Target> targets_;
  std::vector<bool> busy_;
  ibv_comp_channel* wakes_ = nullptr;
  ibv_cq* queue_ = nullptr;
  std::size_t in_flight_ = 0;
};

}  // namespace

std::unique_ptr<RawLoop> start_verbs_loop(const RawShape& shape) {
  return std::make_unique<VerbsLoop>(shape);
}

}  // namespace stdchk::bench
