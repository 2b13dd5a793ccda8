#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <vector>

#include "transport/connection_link.h"
#include "transport/transfer_parts.h"
#include "transport/transport.h"
#include "transport/verbs/device.h"
#include "transport/verbs/fragment.h"
#include "transport/verbs/message_flow.h"
#include "transport/verbs/peer_regions.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/work_chain.h"

namespace stdchk::transport::verbs {

class VerbsEndpoint;

using State = ConnectionState;

/// A Connection is one reliable connection: a queue pair, the work that the pair has, and the work
/// that waits.
///
/// An idle queue pair gets a work request at once. While it is busy, the WorkChain collects
/// requests.
/// Owns: the connection's id and queue pair. The parts do not know the connection.
/// Threads: the reactor's.
struct Connection {
  Connection(VerbsEndpoint& of, std::uint32_t number);

  // For the link's user.
  Status send(ByteSpan message);
  Status transfer(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                  std::uint64_t offset, Operation& operation);
  void grant_access();

  // Setting up. The greetings go with the request and its answer.
  /// The address is resolved. Finds the route.
  Status resolve_route();
  /// The route is resolved. Makes the queue pair and asks the peer.
  Status connect(const Greeting& mine);
  /// Makes the queue pair and answers the peer's request `asked`.
  Status accept(const rdma_conn_param& asked, const Greeting& mine);
  Status take_greeting(ByteSpan private_data);
  Status take_answer(ByteSpan private_data);
  /// Sends a region table before messages that are sent later.
  void tell_table(const RegionTable& table);

  // Moving data.
  void on_sent(const ibv_wc& completion);
  void on_received(const ibv_wc& completion, const Buffer& buffer);
  /// Posts all collected work requests.
  Status flush();
  /// True when the connection is not made in time, or its work does not move.
  bool is_late(Time now) const;
  /// True when is_late() may become true by time alone.
  bool has_deadline() const;

  // The end.
  /// Destroys the queue pair. Afterwards no write of the peer can land here, and the device touches
  /// no buffer.
  void close_fabric();
  /// Finishes all transfers with `code`.
  void finish_transfers(Code code);

  VerbsEndpoint& endpoint;
  const std::uint32_t number;  ///< never used again, so late completions find no connection
  rdma_cm_id* id = nullptr;
  ibv_cq* send_cq = nullptr;
  QueuePair queue_pair;
  QueuePair::Reads reads;
  State state = State::kConnecting;
  Link* link = nullptr;
  LinkHandler* handler = nullptr;
  Time connect_by{};
  bool waits_for_flush = false;
  bool is_accepted = false;
  bool announced = false;   ///< the user knows: it is up, and has the peer's tables
  bool has_access = false;  ///< the peer may access the memory of this endpoint
  bool peer_has_closed = false;
  WorkChain work;
  MessageFlow messages;
  PeerRegions peer_regions;

 private:
  Status start();
  rdma_conn_param parameters(const Greeting& greeting) const;
  Status post_soon();
  /// Sends fragments of waiting messages, as many as credits allow.
  Status send_waiting();
  Status add_fragment(ByteSpan content, std::uint32_t message_bytes, FragmentKind kind);
  Status on_fragment(ByteSpan bytes);
  Status on_content(const FragmentHeader& header, ByteSpan content);
  Status deliver(ByteSpan message);
  void fail_if(const Status& status);

  TransferCut cut_;
};

using VerbsLink = ConnectionLink<Connection>;

}  // namespace stdchk::transport::verbs
