#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "transport/ofi/library.h"
#include "transport/ofi/message_buffer.h"
#include "transport/ofi/wakes.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

/// A Fabric is one domain of libfabric's verbs provider, with its event queue and completion
/// queues.
///
/// Owns: fabric, domain, event queue, and the completion queue that all connections share. Objects
///   of the domain must end before it.
/// Errors: open() refuses a provider that lacks something necessary.
class Fabric {
 public:
  /// Entries of the completion queue of one connection.
  explicit Fabric(std::size_t own_queue_entries) : own_queue_entries_(own_queue_entries) {}
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// `receives` are posted on each connection. Both queues wake by `wakes`.
  Status open(const std::string& host, std::uint16_t port, std::size_t receives, Wakes& wakes);
  /// The longest transfer that one request moves.
  std::size_t request_bytes_max() const { return info_->ep_attr->max_msg_size; }

  fid_fabric& fabric() { return *fabric_; }
  fid_domain& domain() { return *domain_; }
  fid_eq& events() { return *events_; }
  /// Completions of the receives of all connections.
  fid_cq& received() { return *received_; }

  /// Makes a buffer for messages, registered if the provider needs that.
  Result<MessageBuffer> make_buffer(std::size_t bytes);
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory);
  /// Opens a queue that wakes the reactor. Closing the queue ends that.
  Result<fid_cq*> open_own_queue(Wakes& wakes) { return open_queue(own_queue_entries_, wakes); }
  /// Makes a passive endpoint at the address of open(), which reports to events().
  Result<fid_pep*> listen();
  /// Returns a description of a connection to `peer`, from any free port.
  InfoPtr info_to(const sockaddr_storage& peer) const;
  void free(fi_info* info) const { library_->freeinfo(info); }

 private:
  Status open_queues(Wakes& wakes);
  Result<fid_cq*> open_queue(std::size_t entries, Wakes& wakes);

  const std::size_t own_queue_entries_;
  const FabricLibrary* library_ = nullptr;
  InfoPtr info_;      ///< for the listener
  InfoPtr out_info_;  ///< for connections that this endpoint opens
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_eq* events_ = nullptr;
  fid_cq* received_ = nullptr;
};

/// `result` is what a function of libfabric has returned.
tl::unexpected<Error> fail_fabric(const char* where, int result);

}  // namespace stdchk::transport::ofi
