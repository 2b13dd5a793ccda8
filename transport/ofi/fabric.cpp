#include "transport/ofi/fabric.h"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/random.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "transport/ofi/region.h"
#include "transport/socket_address.h"

namespace stdchk::transport::ofi {
namespace {

constexpr std::size_t kSharedQueueEntries = 4096;
constexpr std::size_t kEventsMax = 1024;

/// True when this kind of endpoint is usable. Over iWARP a message that comes before a receive ends
/// the connection, and libfabric's verbs has no flow control that prevents it.
bool is_fit(const fi_info& info) {
  const std::uint32_t protocol = info.ep_attr->protocol;
  return info.ep_attr->type == FI_EP_MSG && info.tx_attr->iov_limit >= kPiecesMax &&
         protocol != FI_PROTO_IWARP && protocol != FI_PROTO_RDMA_CM_IB_XRC;
}

/// Returns a copy of the best fitting entry, or nullptr.
InfoPtr choose(const fi_info* all, const FabricLibrary* library) {
  for (const fi_info* each = all; each != nullptr; each = each->next) {
    if (kProvider == each->fabric_attr->prov_name && is_fit(*each)) {
      return InfoPtr(library->dupinfo(each), {library});
    }
  }
  return InfoPtr(nullptr, {library});
}

/// Sets the port of the source address to 0: any free port.
void take_any_port(fi_info& info) {
  auto& address = *static_cast<sockaddr*>(info.src_addr);
  if (address.sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;
  }
}

}  // namespace

tl::unexpected<Error> fail_fabric(const char* where, int result) {
  return fail(Code::kSystem, where, -result);
}

Fabric::~Fabric() {
  if (received_ != nullptr) fi_close(&received_->fid);
  if (domain_ != nullptr) fi_close(&domain_->fid);
  if (events_ != nullptr) fi_close(&events_->fid);
  if (fabric_ != nullptr) fi_close(&fabric_->fid);
}

Status Fabric::open(const std::string& host, std::uint16_t port, std::size_t receives,
                    Wakes& wakes) {
  STDCHK_ASSIGN(library_, FabricLibrary::load());
  const InfoPtr hints(library_->dupinfo(nullptr), {library_});
  if (hints == nullptr) return fail(Code::kNoMemory, "ofi.open");
  hints->caps = FI_MSG | FI_RMA;
  // Two completions of a write, which a read proves, share a context.
  hints->mode = FI_RX_CQ_DATA;
  hints->ep_attr->type = FI_EP_MSG;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->size = own_queue_entries_;
  hints->rx_attr->size = receives;
  const std::string service = std::to_string(port);
  fi_info* all = nullptr;
  const int result = library_->getinfo(FI_VERSION(1, 17), host.c_str(), service.c_str(), FI_SOURCE,
                                       hints.get(), &all);
  if (result != 0 && result != -FI_ENODATA) return fail_fabric("ofi.open fi_getinfo", result);
  info_ = choose(all, library_);
  out_info_ = choose(all, library_);
  if (all != nullptr) library_->freeinfo(all);
  if (info_ == nullptr || out_info_ == nullptr) {
    return fail(Code::kUnsupported, "ofi.open: libfabric has no provider of that kind that fits");
  }
  // A connection that is made here takes any free port, not the listener's.
  take_any_port(*out_info_);
  return open_queues(wakes);
}

Status Fabric::open_queues(Wakes& wakes) {
  int result = library_->fabric(info_->fabric_attr, &fabric_, nullptr);
  if (result != 0) return fail_fabric("ofi.open fi_fabric", result);
  fi_eq_attr eq_attr{.size = kEventsMax, .wait_obj = FI_WAIT_FD};
  result = fi_eq_open(fabric_, &eq_attr, &events_, nullptr);
  if (result != 0) return fail_fabric("ofi.open fi_eq_open", result);
  result = fi_domain(fabric_, info_.get(), &domain_, nullptr);
  if (result != 0) return fail_fabric("ofi.open fi_domain", result);
  STDCHK_TRY(wakes.open(*events_));
  STDCHK_ASSIGN(received_, open_queue(kSharedQueueEntries, wakes));
  return {};
}

Result<fid_cq*> Fabric::open_queue(std::size_t entries, Wakes& wakes) {
  fi_cq_attr attr{.size = entries, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
  fid_cq* queue = nullptr;
  const int result = fi_cq_open(domain_, &attr, &queue, nullptr);
  if (result != 0) return fail_fabric("ofi.open fi_cq_open", result);
  if (const auto woken = wakes.add(queue->fid); !woken.has_value()) {
    fi_close(&queue->fid);
    return fail(woken.error());
  }
  return queue;
}

Result<MessageBuffer> Fabric::make_buffer(std::size_t bytes) {
  const bool registers = (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  return MessageBuffer::make(registers ? domain_ : nullptr, bytes);
}

Result<std::unique_ptr<MemoryRegion>> Fabric::register_memory(MutableByteSpan memory) {
  std::uint64_t key = 0;  // hard to guess, if the provider does not choose it
  if ((info_->domain_attr->mr_mode & FI_MR_PROV_KEY) == 0 &&
      ::getrandom(&key, sizeof(key), 0) != sizeof(key)) {
    return fail_errno("ofi.register getrandom");
  }
  fid_mr* mr = nullptr;
  const int result =
      fi_mr_reg(domain_, memory.data(), memory.size(),
                FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, &mr, nullptr);
  if (result != 0) return fail_fabric("ofi.register fi_mr_reg", result);
  return std::make_unique<OfiRegion>(mr, memory,
                                     (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0);
}

Result<fid_pep*> Fabric::listen() {
  fid_pep* listener = nullptr;
  int result = fi_passive_ep(fabric_, info_.get(), &listener, nullptr);
  if (result != 0) return fail_fabric("ofi.listen fi_passive_ep", result);
  result = fi_pep_bind(listener, &events_->fid, 0);
  if (result == 0) result = fi_listen(listener);
  if (result == 0) return listener;
  fi_close(&listener->fid);
  return fail_fabric("ofi.listen", result);
}

InfoPtr Fabric::info_to(const sockaddr_storage& peer) const {
  InfoPtr info(library_->dupinfo(out_info_.get()), {library_});
  if (info == nullptr) return info;
  std::free(info->dest_addr);
  info->dest_addrlen = address_bytes(peer);
  info->dest_addr = std::malloc(info->dest_addrlen);
  info->addr_format = peer.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  if (info->dest_addr != nullptr) std::memcpy(info->dest_addr, &peer, info->dest_addrlen);
  return info;
}

}  // namespace stdchk::transport::ofi
