#include "transport/verbs/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/limits.h"
#include "transport/transfer_check.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/region.h"

namespace stdchk::transport::verbs {
namespace {

/// Work requests that transfers leave to messages.
constexpr std::size_t kKeptForMessages = 2 * kBuffersPerLink;
constexpr int kResolveMsMax = 60'000;

}  // namespace

Connection::Connection(VerbsEndpoint& of, std::uint32_t its_number)
    : endpoint(of),
      number(its_number),
      reads{of.device().limits().reads_as_target, of.device().limits().reads_as_initiator},
      work(queue_pair, of.clock(), its_number, of.scratch(), of.device().limits().send_depth),
      messages(of.capabilities().message_bytes_max) {}

Status Connection::resolve_route() {
  if (id->verbs != &endpoint.device().context()) {
    return fail(Code::kUnsupported, "verbs.connect: the peer is behind another device");
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(connect_by - endpoint.clock().now());
  const auto wait = static_cast<int>(std::clamp<long long>(left.count(), 1, kResolveMsMax));
  if (::rdma_resolve_route(id, wait) == 0) return {};
  return fail(Code::kPeerLost, "verbs.connect rdma_resolve_route", errno);
}

Status Connection::start() {
  Device& device = endpoint.device();
  STDCHK_ASSIGN(send_cq, device.add_link());
  STDCHK_TRY(queue_pair.make(device, *send_cq, endpoint.withholds_access()));
  endpoint.on_queue_pair(*this);
  return {};
}

Status Connection::connect(const Greeting& mine) {
  STDCHK_TRY(start());
  STDCHK_TRY(queue_pair.prepare_request(*id));
  rdma_conn_param asked = parameters(mine);
  if (::rdma_connect(id, &asked) == 0) return {};
  return fail(Code::kPeerLost, "verbs.connect rdma_connect", errno);
}

Status Connection::accept(const rdma_conn_param& asked, const Greeting& mine) {
  reads.as_target = std::min(reads.as_target, asked.responder_resources);
  reads.as_initiator = std::min(reads.as_initiator, asked.initiator_depth);
  STDCHK_TRY(start());
  STDCHK_TRY(queue_pair.prepare_answer(*id, reads));
  rdma_conn_param agreed = parameters(mine);
  if (::rdma_accept(id, &agreed) != 0) return fail_errno("verbs.accept rdma_accept");
  return {};
}

Status Connection::take_greeting(ByteSpan private_data) {
  const auto peer = greeting_of(private_data);
  if (!peer.has_value()) return fail(Code::kRefused, "verbs.connect: another version");
  peer_regions.expect(peer->tables);
  return {};
}

Status Connection::take_answer(ByteSpan private_data) {
  STDCHK_TRY(take_greeting(private_data));
  STDCHK_TRY(queue_pair.take_answer(*id));
  if (::rdma_establish(id) == 0) return {};
  return fail(Code::kPeerLost, "verbs.connect rdma_establish", errno);
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
  parameters.qp_num = queue_pair.number();
  return parameters;
}

Status Connection::transfer(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                            std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN([[maybe_unused]] const std::size_t bytes,
                transfer_bytes(pieces, key, offset, endpoint.capabilities().rma_bytes_max));
  if (state != State::kConnected) return fail(Code::kPeerLost, "verbs.rma");
  const DeviceLimits& device = endpoint.device().limits();
  PartLimits limits{.bytes = device.part_bytes};
  if (!is_write) limits.pieces = device.read_pieces;
  STDCHK_ASSIGN(const RegionTable* const table, peer_regions.table_of(key));
  if (table != nullptr) limits.remote_bytes = table->part_bytes;
  cut_.pieces.clear();
  for (const LocalPiece& piece : pieces) {
    cut_piece(piece, static_cast<const VerbsRegion*>(piece.region)->part_bytes(), cut_.pieces);
  }
  split_transfer(cut_.pieces, offset, limits, cut_.parts);
  // Each part may need its own proof, and so may the collected chain.
  const std::size_t needed = 2 * cut_.parts.size() + kKeptForMessages;
  if (needed > device.send_depth) return fail(Code::kTooLarge, "verbs.rma");
  if (work.room() < needed) return fail(Code::kWouldBlock, "verbs.rma");
  operation.started();
  for (const TransferPart& part : cut_.parts) {
    const auto part_key = table == nullptr ? static_cast<std::uint32_t>(key.key)
                                           : table->keys[part.offset / table->part_bytes];
    const bool is_last = &part == &cut_.parts.back();
    work.add_part(is_write, part, key.base, part_key, is_last ? &operation : nullptr);
  }
  return post_soon();
}

/// Posts at once if the device has no work for this connection, otherwise later with other
/// requests. A started operation ends by its completion, so failures are reported there, not here.
Status Connection::post_soon() {
  if (work.should_post()) {
    fail_if(flush());
  } else {
    endpoint.flush_later(*this);
  }
  return {};
}

Status Connection::flush() { return state == State::kConnected ? work.post() : Status{}; }

void Connection::fail_if(const Status& status) {
  if (!status) endpoint.fail_later(*this, status.error().code, status.error().where);
}

Status Connection::send(ByteSpan message) {
  if (message.size() > endpoint.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "verbs.send");
  }
  if (state != State::kConnected) return fail(Code::kPeerLost, "verbs.send");
  if (!messages.has_room(message.size())) return fail(Code::kWouldBlock, "verbs.send");
  const bool at_once = !messages.has_waiting() && messages.has_credit() &&
                       work.room() > kBuffersPerLink && message.size() <= kFragmentContentMax;
  if (at_once) {
    STDCHK_TRY(
        add_fragment(message, static_cast<std::uint32_t>(message.size()), FragmentKind::kMessage));
    return post_soon();
  }
  messages.add({message.begin(), message.end()}, FragmentKind::kMessage);
  fail_if(send_waiting());
  return {};
}

void Connection::grant_access() {
  if (state != State::kConnected || has_access) return;
  has_access = true;
  if (const Status status = queue_pair.grant_access(); !status) return fail_if(status);
  endpoint.tell_tables(*this);
}

void Connection::tell_table(const RegionTable& table) {
  messages.add(encode(table), FragmentKind::kRegionTable);
  fail_if(send_waiting());
}

Status Connection::add_fragment(ByteSpan content, std::uint32_t message_bytes, FragmentKind kind) {
  STDCHK_ASSIGN(Buffer* const buffer, endpoint.device().take_buffer());
  const FragmentHeader header = messages.header_for(message_bytes, kind);
  std::memcpy(buffer->data, &header, sizeof(header));
  if (!content.empty()) std::memcpy(buffer->data + sizeof(header), content.data(), content.size());
  work.add_message(*buffer, sizeof(header) + content.size());
  return {};
}

Status Connection::send_waiting() {
  bool any = false;
  while (messages.has_waiting() && messages.has_credit() && work.room() > kBuffersPerLink) {
    const MessageFlow::Fragment fragment = messages.first();
    STDCHK_TRY(add_fragment(fragment.content, fragment.message_bytes, fragment.kind));
    messages.drop_first(fragment.content.size());
    any = true;
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
  std::size_t count = work.count_through(completion.wr_id);
  // A handler that closes the link empties the queue.
  for (; count > 0 && !work.empty(); --count) {
    const SendQueue::Entry entry = work.pop();
    if (entry.buffer != nullptr) endpoint.device().give_buffer(*entry.buffer);
    if (entry.operation != nullptr) entry.operation->finish({});
  }
  if (state == State::kConnected) fail_if(send_waiting());
}

void Connection::on_received(const ibv_wc& completion, const Buffer& buffer) {
  if (state == State::kClosed) return;
  if (completion.status != IBV_WC_SUCCESS) {
    return endpoint.fail_later(*this, Code::kPeerLost, ::ibv_wc_status_str(completion.status));
  }
  if (const Status taken = on_fragment({buffer.data, completion.byte_len}); !taken) {
    return fail_if(taken);
  }
  if (state != State::kConnected) return;  // a handler has closed the link
  Status status = send_waiting();
  if (status.has_value() && messages.must_return_credits() && work.room() > 1) {
    status = add_fragment({}, 0, FragmentKind::kOnlyCredits);
    if (status.has_value()) status = post_soon();
  }
  fail_if(status);
}

Status Connection::on_fragment(ByteSpan bytes) {
  FragmentHeader header;
  if (bytes.size() < sizeof(header)) return fail(Code::kMalformed, "verbs.fragment");
  std::memcpy(&header, bytes.data(), sizeof(header));
  STDCHK_TRY(messages.take(header));
  if (header.kind == FragmentKind::kOnlyCredits) return {};
  return on_content(header, bytes.subspan(sizeof(header)));
}

Status Connection::on_content(const FragmentHeader& header, ByteSpan content) {
  if (header.kind == FragmentKind::kRegionTable) {
    // A peer that has not proven its identity must not send tables.
    if (endpoint.withholds_access() && !has_access) return fail(Code::kMalformed, "verbs.table");
    STDCHK_ASSIGN(RegionTable table, decode_region_table(content));
    peer_regions.add(std::move(table));
    endpoint.announce(*this);
    return {};
  }
  if (header.kind != FragmentKind::kMessage) return fail(Code::kMalformed, "verbs.fragment");
  STDCHK_ASSIGN(const auto message, messages.join(header, content));
  return message.has_value() ? deliver(*message) : Status{};
}

Status Connection::deliver(ByteSpan message) {
  if (link == nullptr || handler == nullptr) return fail(Code::kPeerLost, "verbs.early message");
  handler->on_message(*link, message);
  return {};
}

bool Connection::has_deadline() const {
  if (state == State::kConnecting || state == State::kAccepting) return true;
  return state == State::kConnected && (!announced || !work.empty());
}

bool Connection::is_late(Time now) const {
  if (!has_deadline()) return false;
  return state == State::kConnected && announced ? work.is_late(now) : now >= connect_by;
}

void Connection::close_fabric() {
  if (id == nullptr) return;
  bool tells_peer = false;
  if (queue_pair.get() != nullptr) {
    queue_pair.stop();
    tells_peer = ::rdma_disconnect(id) == 0 && !peer_has_closed;
    queue_pair.destroy();
  }
  endpoint.give_back(*id, tells_peer);
  id = nullptr;
  if (send_cq != nullptr) endpoint.device().remove_link(*send_cq);
  send_cq = nullptr;
}

void Connection::finish_transfers(Code code) {
  work.forget_posted();
  while (!work.empty()) {
    const SendQueue::Entry entry = work.pop();
    if (entry.buffer != nullptr) endpoint.device().give_buffer(*entry.buffer);
    if (entry.operation != nullptr) entry.operation->finish(fail(code, "verbs.rma"));
  }
}

}  // namespace stdchk::transport::verbs
