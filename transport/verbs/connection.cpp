#include "transport/verbs/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/limits.h"
#include "transport/transfer_check.h"
#include "transport/verbs/endpoint.h"

namespace stdchk::transport::verbs {

namespace {

constexpr std::size_t kChainMax = 16;
/// Bytes after which a proof, or a signal, is added.
constexpr std::size_t kUnprovenMax = 512 * limits::kKiB;
constexpr std::size_t kKeptForMessages = 2 * kBuffersPerLink;
constexpr std::size_t kMessagesMax = 128;
constexpr std::size_t kMessageBytesMax = 4 * limits::kMiB;

}  // namespace

Connection::Connection(VerbsEndpoint& of, std::uint32_t its_number)
    : endpoint(of),
      number(its_number),
      queue(of.device().send_depth()),
      assembler_(of.capabilities().message_bytes_max) {
  reads = {of.device().reads_as_target(), of.device().reads_as_initiator()};
}

Status Connection::start() {
  Device& device = endpoint.device();
  STDCHK_ASSIGN(send_cq, device.add_link());
  STDCHK_TRY(queue_pair.make(device, *send_cq, endpoint.withholds_access()));
  queue_pair_number = queue_pair.number();
  credits_ = kCredits;
  return {};
}

rdma_conn_param Connection::parameters(const Greeting& greeting) const {
  rdma_conn_param parameters{};
  parameters.private_data = &greeting;
  parameters.private_data_len = sizeof(greeting);
  parameters.responder_resources = reads.as_target;
  parameters.initiator_depth = reads.as_initiator;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  parameters.srq = 1;
  parameters.qp_num = queue_pair_number;
  return parameters;
}

Connection::Request& Connection::add(ibv_wr_opcode opcode, const SendQueue::Entry& entry) {
  Request& request = chain_.emplace_back();
  request.work.opcode = opcode;
  request.work.wr_id = std::uint64_t{number} << 32 | queue.push(entry);
  return request;
}

void Connection::add_part(bool is_write, const Part& part, std::uint64_t base, std::uint32_t key,
                          Operation* operation) {
  Request& request = add(is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                         {.operation = operation, .started = endpoint.clock().now()});
  for (std::size_t i = 0; i < part.count; ++i) {
    const LocalPiece& piece = part.pieces[i];
    request.pieces[i] = {.addr = reinterpret_cast<std::uint64_t>(piece.data),
                         .length = static_cast<std::uint32_t>(piece.length),
                         .lkey = static_cast<const VerbsRegion*>(piece.region)->lkey(piece.data)};
  }
  request.work.num_sge = static_cast<int>(part.count);
  request.work.wr.rdma.remote_addr = base + part.offset;
  request.work.wr.rdma.rkey = key;
  unproven_bytes_ += part.bytes;
  if (is_write) {
    if (part.bytes <= queue_pair.inline_bytes()) request.work.send_flags |= IBV_SEND_INLINE;
    proof_key_ = key;
    proof_address_ = base + part.offset;
    if (unproven_bytes_ >= kUnprovenMax) add_proof();
  } else {
    proof_address_ = 0;  // the read also proves the writes before it
    if (unproven_bytes_ < kUnprovenMax) return;
    request.work.send_flags |= IBV_SEND_SIGNALED;
    unproven_bytes_ = 0;
  }
}

/// Reads one byte of what was written. The target's device answers after the writes before the read
/// are in its memory.
void Connection::add_proof() {
  Request& request = add(IBV_WR_RDMA_READ, {.started = endpoint.clock().now()});
  request.pieces[0] = {.addr = reinterpret_cast<std::uint64_t>(endpoint.scratch().data),
                       .length = 1,
                       .lkey = endpoint.scratch().lkey};
  request.work.num_sge = 1;
  request.work.wr.rdma.remote_addr = proof_address_;
  request.work.wr.rdma.rkey = proof_key_;
  request.work.send_flags |= IBV_SEND_SIGNALED;
  proof_address_ = 0;
  unproven_bytes_ = 0;
}

Status Connection::transfer(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                            std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN([[maybe_unused]] const std::size_t bytes,
                transfer_bytes(pieces, key, offset, endpoint.capabilities().rma_bytes_max));
  if (state != State::kConnected) return fail(Code::kPeerLost, "verbs.rma");
  PartLimits limits{.bytes = endpoint.device().part_bytes()};
  if (!is_write) limits.pieces = endpoint.device().read_pieces();
  const RegionTable* table = nullptr;
  if (const auto told = static_cast<std::uint32_t>(key.key >> 32); told != 0) {
    const auto found = tables_.find(told);
    // The region was not announced, or the key is invented.
    if (found == tables_.end() || (key.key & 0xFFFFFFFF) != 0 ||
        (key.length - 1) / found->second.part_bytes >= found->second.keys.size()) {
      return fail(Code::kInvalidArgument, "verbs.rma");
    }
    table = &found->second;
    limits.remote_bytes = table->part_bytes;
  }
  pieces_.clear();
  for (const LocalPiece& piece : pieces) {
    cut_piece(piece, static_cast<const VerbsRegion*>(piece.region)->part_bytes(), pieces_);
  }
  split(pieces_, offset, limits, parts_);
  // Each part may need its own proof, and so may the collected chain.
  const std::size_t needed = 2 * parts_.size() + kKeptForMessages;
  if (needed > endpoint.device().send_depth()) return fail(Code::kTooLarge, "verbs.rma");
  if (queue.room() < needed) return fail(Code::kWouldBlock, "verbs.rma");
  operation.started();
  for (const Part& part : parts_) {
    const auto part_key = table == nullptr ? static_cast<std::uint32_t>(key.key)
                                           : table->keys[part.offset / table->part_bytes];
    add_part(is_write, part, key.base, part_key, &part == &parts_.back() ? &operation : nullptr);
  }
  return post_soon();
}

/// Posts at once if the device has no work for this connection, otherwise later with other
/// requests. A started operation ends by its completion, so failures are reported there, not here.
Status Connection::post_soon() {
  if (posted_ == 0 || chain_.size() >= kChainMax) {
    if (const Status status = flush(); !status.has_value()) {
      endpoint.fail_later(*this, status.error().code, status.error().where);
    }
  } else {
    endpoint.flush_later(*this);
  }
  return {};
}

Status Connection::flush() {
  if (chain_.empty() || state != State::kConnected) return {};
  if (proof_address_ != 0) add_proof();
  unproven_bytes_ = 0;
  chain_.back().work.send_flags |= IBV_SEND_SIGNALED;
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    chain_[i].work.sg_list = chain_[i].pieces.data();
    chain_[i].work.next = i + 1 < chain_.size() ? &chain_[i + 1].work : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const int result = ::ibv_post_send(queue_pair.get(), &chain_.front().work, &bad);
  posted_ += chain_.size();
  chain_.clear();
  if (result != 0) return fail(Code::kPeerLost, "verbs.link ibv_post_send", result);
  return {};
}

Status Connection::send(ByteSpan message) {
  if (message.size() > endpoint.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "verbs.send");
  }
  if (state != State::kConnected) return fail(Code::kPeerLost, "verbs.send");
  if (waiting_.size() >= kMessagesMax || waiting_bytes_ + message.size() > kMessageBytesMax) {
    return fail(Code::kWouldBlock, "verbs.send");
  }
  const bool at_once = waiting_.empty() && credits_ > 0 && queue.room() > kBuffersPerLink &&
                       message.size() <= kFragmentContentMax;
  if (at_once) {
    STDCHK_TRY(
        add_fragment(message, static_cast<std::uint32_t>(message.size()), FragmentKind::kMessage));
    return post_soon();
  }
  waiting_.push_back({std::vector<std::byte>(message.begin(), message.end())});
  waiting_bytes_ += message.size();
  if (const Status status = send_waiting(); !status.has_value()) {
    endpoint.fail_later(*this, status.error().code, status.error().where);
  }
  return {};
}

void Connection::grant_access() {
  if (state != State::kConnected || has_access) return;
  has_access = true;
  if (const Status status = queue_pair.grant_access(); !status.has_value()) {
    return endpoint.fail_later(*this, status.error().code, status.error().where);
  }
  endpoint.tell_tables(*this);
}

void Connection::tell_table(const RegionTable& table) {
  waiting_.push_back({encode(table), FragmentKind::kRegionTable});
  waiting_bytes_ += waiting_.back().bytes.size();
  if (const Status status = send_waiting(); !status.has_value()) {
    endpoint.fail_later(*this, status.error().code, status.error().where);
  }
}

Status Connection::add_fragment(ByteSpan content, std::uint32_t message_bytes, FragmentKind kind) {
  STDCHK_ASSIGN(Buffer* const buffer, endpoint.device().take_buffer());
  const FragmentHeader header{message_bytes, credits_to_return_, kind};
  peer_may_send_ = static_cast<std::uint16_t>(peer_may_send_ + credits_to_return_);
  credits_to_return_ = 0;
  if (kind != FragmentKind::kOnlyCredits) --credits_;
  std::memcpy(buffer->data, &header, sizeof(header));
  if (!content.empty()) std::memcpy(buffer->data + sizeof(header), content.data(), content.size());
  Request& request = add(IBV_WR_SEND, {.buffer = buffer, .started = endpoint.clock().now()});
  const std::size_t bytes = sizeof(header) + content.size();
  request.pieces[0] = {.addr = reinterpret_cast<std::uint64_t>(buffer->data),
                       .length = static_cast<std::uint32_t>(bytes),
                       .lkey = buffer->lkey};
  request.work.num_sge = 1;
  if (bytes <= queue_pair.inline_bytes()) request.work.send_flags |= IBV_SEND_INLINE;
  return {};
}

Status Connection::send_waiting() {
  bool any = false;
  while (!waiting_.empty() && credits_ > 0 && queue.room() > kBuffersPerLink) {
    Waiting& message = waiting_.front();
    const std::size_t left = message.bytes.size() - message.sent;
    const std::size_t length = std::min(left, kFragmentContentMax);
    STDCHK_TRY(add_fragment(ByteSpan(message.bytes).subspan(message.sent, length),
                            static_cast<std::uint32_t>(message.bytes.size()), message.kind));
    any = true;
    message.sent += length;
    if (message.sent < message.bytes.size()) continue;
    waiting_bytes_ -= message.bytes.size();
    waiting_.pop_front();
  }
  return any ? post_soon() : Status{};
}

/// Ends the completed entry and all entries before it.
void Connection::on_sent(const ibv_wc& completion) {
  if (state == State::kClosed) return;
  if (completion.status != IBV_WC_SUCCESS) {
    // A failed work request ends the link, because the order of those behind it is lost.
    return endpoint.fail_later(*this, Code::kPeerLost, ::ibv_wc_status_str(completion.status));
  }
  moved = endpoint.clock().now();
  std::size_t count = queue.count_through(static_cast<std::uint32_t>(completion.wr_id));
  posted_ -= count;
  // A handler that closes the link empties the queue.
  for (; count > 0 && !queue.empty(); --count) {
    const SendQueue::Entry entry = queue.pop();
    if (entry.buffer != nullptr) endpoint.device().give_buffer(*entry.buffer);
    if (entry.operation != nullptr) entry.operation->finish({});
  }
  if (state != State::kConnected) return;
  if (const Status status = send_waiting(); !status.has_value()) {
    endpoint.fail_later(*this, status.error().code, status.error().where);
  }
}

void Connection::on_received(const ibv_wc& completion, const Buffer& buffer) {
  if (state == State::kClosed) return;
  if (completion.status != IBV_WC_SUCCESS) {
    return endpoint.fail_later(*this, Code::kPeerLost, ::ibv_wc_status_str(completion.status));
  }
  FragmentHeader header;
  const ByteSpan bytes(buffer.data, completion.byte_len);
  if (bytes.size() < sizeof(header)) {
    return endpoint.fail_later(*this, Code::kMalformed, "verbs.fragment");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.credits > kCredits - std::min(credits_, kCredits)) {
    return endpoint.fail_later(*this, Code::kMalformed, "verbs.credits");
  }
  credits_ = static_cast<std::uint16_t>(credits_ + header.credits);
  if (header.kind != FragmentKind::kOnlyCredits) {
    if (peer_may_send_ == 0) {
      return endpoint.fail_later(*this, Code::kMalformed, "verbs.credits");
    }
    --peer_may_send_;
    ++credits_to_return_;
    const Status taken = on_content(header, bytes.subspan(sizeof(header)));
    if (!taken.has_value()) {
      return endpoint.fail_later(*this, taken.error().code, taken.error().where);
    }
    if (state != State::kConnected) return;
  }
  Status status = send_waiting();
  if (status.has_value() && credits_to_return_ >= kCredits / 2 && queue.room() > 1) {
    status = add_fragment({}, 0, FragmentKind::kOnlyCredits);
    if (status.has_value()) status = post_soon();
  }
  if (!status.has_value()) endpoint.fail_later(*this, status.error().code, status.error().where);
}

Status Connection::on_content(const FragmentHeader& header, ByteSpan content) {
  if (header.kind == FragmentKind::kRegionTable) {
    // A peer that has not proven its identity must not send tables.
    if (endpoint.withholds_access() && !has_access) return fail(Code::kMalformed, "verbs.table");
    STDCHK_ASSIGN(RegionTable table, decode_region_table(content));
    const std::uint32_t its_number = table.number;
    tables_[its_number] = std::move(table);
    endpoint.announce(*this);
    return {};
  }
  if (header.kind != FragmentKind::kMessage) return fail(Code::kMalformed, "verbs.fragment");
  STDCHK_ASSIGN(const auto message, assembler_.add(header, content));
  if (message.has_value()) deliver(*message);
  return {};
}

void Connection::deliver(ByteSpan message) {
  if (link == nullptr || handler == nullptr) {
    return endpoint.fail_later(*this, Code::kPeerLost, "verbs.early message");
  }
  handler->on_message(*link, message);
}

void Connection::close_fabric() {
  if (id == nullptr) return;
  bool tells_peer = false;
  if (queue_pair.get() != nullptr) {
    queue_pair.stop();
    tells_peer = ::rdma_disconnect(id) == 0 && !peer_has_closed;
    queue_pair.destroy();
  }
  if (tells_peer) {
    endpoint.linger(*id);
  } else {
    ::rdma_destroy_id(id);
  }
  id = nullptr;
  if (send_cq != nullptr) endpoint.device().remove_link(*send_cq);
  send_cq = nullptr;
}

void Connection::finish_transfers(Code code) {
  chain_.clear();
  posted_ = 0;
  while (!queue.empty()) {
    const SendQueue::Entry entry = queue.pop();
    if (entry.buffer != nullptr) endpoint.device().give_buffer(*entry.buffer);
    if (entry.operation != nullptr) entry.operation->finish(fail(code, "verbs.rma"));
  }
}

VerbsRegion::~VerbsRegion() {
  endpoint_.forget(*this);
  deregister(parts_);
}

RegionTable VerbsRegion::table() const {
  RegionTable table{number_, parts_.part_bytes, {}};
  for (const ibv_mr* const each : parts_.mrs) table.keys.push_back(each->rkey);
  return table;
}

}  // namespace stdchk::transport::verbs
