#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "transport/connection_link.h"
#include "transport/transport.h"
#include "transport/verbs/device.h"
#include "transport/verbs/fragment.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/send_queue.h"
#include "transport/verbs/split.h"

namespace stdchk::transport::verbs {

class VerbsEndpoint;

using State = ConnectionState;

/// A Connection is one reliable connection: a queue pair, the work that the pair has, and the work
/// that waits.
///
/// An idle queue pair gets a work request at once. While it is busy, work requests are collected
/// and then posted as one chain. The last request of a chain is signalled; in a chain with many
/// bytes, so are others. After writes comes a read of one byte; the writes complete with it.
///
/// Threads: the reactor's.
struct Connection {
  Connection(VerbsEndpoint& of, std::uint32_t number);

  Status send(ByteSpan message);
  /// Sends a region table before messages that are sent later.
  void tell_table(const RegionTable& table);
  bool has_tables() const { return tables_.size() >= tables_expected; }
  Status transfer(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                  std::uint64_t offset, Operation& operation);
  void grant_access();
  /// Makes the queue pair.
  Status start();
  rdma_conn_param parameters(const Greeting& greeting) const;
  void on_sent(const ibv_wc& completion);
  void on_received(const ibv_wc& completion, const Buffer& buffer);
  /// Posts all collected work requests.
  Status flush();
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
  std::uint32_t queue_pair_number = 0;
  State state = State::kConnecting;
  Link* link = nullptr;
  LinkHandler* handler = nullptr;
  Time connect_by{};
  Time moved{};  ///< last time that work ended; a long queue that moves is not late
  SendQueue queue;
  bool waits_for_flush = false;
  bool is_accepted = false;
  bool announced = false;             ///< the user knows: it is up, and has the peer's tables
  bool has_access = false;            ///< the peer may access the memory of this endpoint
  std::uint32_t tables_expected = 0;  ///< number of tables that the peer sends first
  bool peer_has_closed = false;

 private:
  struct Request {
    ibv_send_wr work{};
    std::array<ibv_sge, kPiecesMax> pieces{};
  };
  struct Waiting {
    std::vector<std::byte> bytes;
    FragmentKind kind = FragmentKind::kMessage;
    std::size_t sent = 0;
  };
  Request& add(ibv_wr_opcode opcode, const SendQueue::Entry& entry);
  void add_part(bool is_write, const Part& part, std::uint64_t base, std::uint32_t key,
                Operation* operation);
  void add_proof();
  Status post_soon();
  /// Sends fragments of waiting messages, as many as credits allow.
  Status send_waiting();
  Status add_fragment(ByteSpan content, std::uint32_t message_bytes, FragmentKind kind);
  Status on_content(const FragmentHeader& header, ByteSpan content);
  void deliver(ByteSpan message);

  std::vector<Request> chain_;  ///< not posted yet
  std::vector<Part> parts_;     ///< member only to reuse its memory
  std::vector<LocalPiece> pieces_;
  std::map<std::uint32_t, RegionTable> tables_;  ///< region tables of the peer
  std::size_t posted_ = 0;                       ///< entries of `queue` that the device has
  std::size_t unproven_bytes_ = 0;
  std::uint32_t proof_key_ = 0;
  std::uint64_t proof_address_ = 0;
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint16_t credits_ = 0;            ///< fragments that the peer has room for
  std::uint16_t credits_to_return_ = 0;  ///< of received fragments
  std::uint16_t peer_may_send_ = kCredits;
  Assembler assembler_;
};

using VerbsLink = ConnectionLink<Connection>;

/// A VerbsRegion is memory registered with one device, whole or in parts.
///
/// Owns: the registrations. Must be destroyed before its endpoint.
class VerbsRegion final : public MemoryRegion {
 public:
  /// `number` is that of its table, if it has several parts.
  VerbsRegion(VerbsEndpoint& endpoint, RegisteredParts parts, MutableByteSpan memory,
              std::uint32_t number)
      : endpoint_(endpoint), parts_(std::move(parts)), memory_(memory), number_(number) {}
  ~VerbsRegion() override;
  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override {
    const std::uint64_t key = in_parts() ? std::uint64_t{number_} << 32 : parts_.mrs.front()->rkey;
    return {key, reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size()};
  }
  bool in_parts() const { return parts_.mrs.size() > 1; }
  std::uint64_t part_bytes() const { return parts_.part_bytes; }
  std::uint32_t lkey(const std::byte* at) const {
    return parts_.mrs[static_cast<std::uint64_t>(at - memory_.data()) / parts_.part_bytes]->lkey;
  }
  RegionTable table() const;

 private:
  VerbsEndpoint& endpoint_;
  RegisteredParts parts_;
  MutableByteSpan memory_;
  std::uint32_t number_;
};

}  // namespace stdchk::transport::verbs
