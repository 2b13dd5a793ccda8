#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <deque>
#include <memory>
#include <vector>

#include "transport/connection_link.h"
#include "transport/ofi/message_buffer.h"
#include "transport/ofi/region.h"
#include "transport/transfer_parts.h"
#include "transport/transport.h"

namespace stdchk::transport::ofi {

class OfiEndpoint;
struct Connection;

constexpr std::size_t kTransfersMax = 128;  ///< transfers in flight on a link
constexpr std::size_t kRequestsMax = 256;   ///< requests of all these transfers
constexpr std::size_t kSendsMax = 128;

/// A Work is one send, receive or transfer. The fabric's context pointer points to it.
///
/// Owns: the message buffer of a send or receive. Outlives its entries in the completion queue.
struct Work {
  enum class Kind : std::uint8_t { kReceive, kSend, kTransfer };
  fi_context2 for_provider{};  ///< must come first: the provider may keep state here
  Connection* connection = nullptr;
  Kind kind = Kind::kSend;
  Operation* operation = nullptr;      ///< set while a transfer is in flight
  std::size_t requests = 0;            ///< number of requests of the transfer
  std::size_t completions_wanted = 0;  ///< completions until the transfer has ended
  Time started{};
  MessageBuffer buffer;
  std::size_t bytes = 0;  ///< length of a message that is sent
};

using State = ConnectionState;

/// A Connection is the fabric's side of one link. It outlives its link until no completion can name
/// it.
///
/// Threads: the reactor's.
struct Connection {
  explicit Connection(OfiEndpoint& of) : endpoint(of) {}

  Status post_receive(Work& work);
  Status send(ByteSpan message);
  Status transfer(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                  std::uint64_t offset, Operation& operation);
  void grant_access() {}  ///< does nothing: knowing a key suffices for access
  /// Counts one of the completions that the work waits for. Returns true after the last one.
  static bool completed(Work& work) {
    return work.kind != Work::Kind::kTransfer || --work.completions_wanted == 0;
  }
  /// Makes a completed work available again.
  void retire(Work& work);
  /// Closes the fabric's endpoint and its own queue. Afterwards no write of the peer can land here,
  /// and the provider touches no buffer.
  void close_fabric();
  /// Finishes all transfers with `code`.
  void finish_transfers(Code code);

  OfiEndpoint& endpoint;
  fid_ep* ep = nullptr;
  fid_cq* transmit = nullptr;  ///< a queue of its own
  State state = State::kConnecting;
  Link* link = nullptr;
  LinkHandler* handler = nullptr;
  Time connect_by{};
  Time moved{};  ///< last end of a transfer or message; a long queue that moves is not late
  std::vector<std::unique_ptr<Work>> receives;
  std::vector<std::unique_ptr<Work>> works;
  std::vector<Work*> idle_sends;
  std::vector<Work*> idle_transfers;
  std::deque<Work*> waiting_sends;  ///< not given to the provider yet
  std::size_t sends = 0;
  std::size_t send_bytes = 0;
  std::size_t transfers = 0;
  std::size_t requests = 0;

 private:
  Status post_send(Work& work);
  Status start_requests(bool write, const RemoteKey& key, Work& work);
  ssize_t start_part(bool write, const TransferPart& part, const RemoteKey& key, Work& work);

  std::vector<TransferPart> parts_;  ///< member only to reuse its memory
};

using OfiLink = ConnectionLink<Connection>;

}  // namespace stdchk::transport::ofi
