#include "manager/arenas/scrubber.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kPassInterval = 1h;
// Bytes per second, where no rate is configured.
constexpr std::uint64_t kRateByHand = 64 * limits::kMiB;
constexpr std::uint64_t kAheadBytes = 64 * limits::kMiB;
constexpr std::uint64_t kBatchBytes = 16 * limits::kMiB;
constexpr std::size_t kBatchItems = 512;
constexpr ChunkIndex kVisited = 1024;

}  // namespace

std::uint64_t Scrubber::rate() const {
  const std::uint64_t set = pool_.config().scrub_rate_bytes_per_s;
  return set > 0 ? set : kRateByHand;
}

void Scrubber::start() {
  if (running_) return;
  running_ = true;
  cursor_ = 0;
  figures_.pass_bytes = 0;
}

void Scrubber::run() {
  // The first pass begins one interval after the manager's start.
  if (!begun_) next_pass_ = pool_.now() + kPassInterval;
  begun_ = true;
  const bool due = pool_.config().scrub_rate_bytes_per_s > 0 && pool_.now() >= next_pass_;
  if (due) start();
  fill();
  bool idle = true;
  for (auto& [benefactor, lane] : lanes_) {
    if (!lane.in_flight && !lane.waiting.empty()) send(benefactor, lane);
    idle = idle && !lane.in_flight && lane.waiting.empty();
  }
  if (!running_ || cursor_ != kNoChunk || !idle) return;
  running_ = false;
  ++figures_.passes;
  next_pass_ = pool_.now() + kPassInterval;
}

/// Fills the lanes until the fullest one has kAheadBytes: the slowest benefactor paces the pass.
void Scrubber::fill() {
  const auto full = [](const auto& lane) { return lane.second.waiting_bytes >= kAheadBytes; };
  while (cursor_ != kNoChunk && std::none_of(lanes_.begin(), lanes_.end(), full)) {
    cursor_ = pool_.state().chunks().visit_some(cursor_, kVisited, [this](ChunkIndex chunk) {
      for (const Extent& copy : pool_.state().chunks().get(chunk).copies) {
        push(chunk, copy, false);
      }
    });
  }
}

void Scrubber::push(ChunkIndex index, const Extent& extent, bool first) {
  if (pool_.peer_of(extent.benefactor) == nullptr) return;
  const Chunk chunk = pool_.state().chunks().get(index);
  // Chunks of files found in the drain directory have no checksum.
  if (chunk.crc == 0 && !chunk.name.is_named()) return;
  Lane& lane = lanes_[extent.benefactor];
  lane.waiting.insert(first ? lane.waiting.begin() : lane.waiting.end(),
                      {index, {extent.offset, chunk.length, chunk.crc, chunk.name}});
  lane.waiting_bytes += chunk.length;
}

void Scrubber::queue_suspected(ChunkIndex chunk, const Extent& extent) {
  push(chunk, extent, true);
}

void Scrubber::queue_suspected(const File& file, BenefactorId benefactor) {
  for (const PackedSlice& slice : file.newest.slices) {
    for (const Extent& copy : pool_.state().chunks().get(slice.chunk).copies) {
      if (copy.benefactor == benefactor) queue_suspected(slice.chunk, copy);
    }
  }
}

void Scrubber::send(BenefactorId benefactor, Lane& lane) {
  if (pool_.now() < lane.next) return;
  rpc::Peer* const peer = pool_.peer_of(benefactor);
  if (peer == nullptr) {
    lane.waiting.clear();
    lane.waiting_bytes = 0;
    return;
  }
  const std::uint64_t most = std::min(kBatchBytes, rate() / 2);
  std::vector<Item> items;
  msg::CheckExtents request;
  std::uint64_t bytes = 0;
  while (!lane.waiting.empty() && items.size() < kBatchItems && (bytes == 0 || bytes < most)) {
    items.push_back(lane.waiting.front());
    lane.waiting.pop_front();
    request.extents.push_back(items.back().checked);
    bytes += items.back().checked.length;
  }
  lane.waiting_bytes -= bytes;
  lane.in_flight = true;
  lane.next = pool_.now() + std::chrono::nanoseconds(bytes * 1'000'000 / (rate() / 1000 + 1));
  peer->call(std::move(request), limits::kOperationDeadline,
             [this, benefactor, items = std::move(items),
              alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) checked(benefactor, items, answer);
             });
}

void Scrubber::checked(BenefactorId benefactor, const std::vector<Item>& items,
                       const rpc::Answer& answer) {
  lanes_[benefactor].in_flight = false;
  const auto* reply = answer ? std::get_if<msg::CheckExtents::Reply>(&*answer) : nullptr;
  if (reply != nullptr) {
    for (const Item& item : items) {
      figures_.checked_bytes += item.checked.length;
      figures_.pass_bytes += item.checked.length;
    }
    for (const std::uint32_t i : reply->corrupt) {
      if (i < items.size()) found_wrong(benefactor, items[i]);
    }
  }
  run();
}

/// Ignores an extent that was freed or moved since the request: it is no
/// copy of that chunk any more.
void Scrubber::found_wrong(BenefactorId benefactor, const Item& item) {
  const Extent extent{benefactor, item.checked.offset};
  if (!pool_.state().chunks().exists(item.chunk)) return;
  const Chunk chunk = pool_.state().chunks().get(item.chunk);
  const bool same = chunk.crc == item.checked.crc && chunk.length == item.checked.length &&
                    chunk.name == item.checked.name;
  const bool there =
      std::find(chunk.copies.begin(), chunk.copies.end(), extent) != chunk.copies.end();
  if (!same || !there || pool_.is_wrong(extent)) return;
  ++figures_.wrong_chunks;
  log::error("benefactor {}: the chunk of {} bytes at {} has changed; {}", benefactor.value,
             chunk.length, extent.offset,
             chunk.copies.size() > 1                ? "another copy takes its place"
             : pool_.is_reconstructible(item.chunk) ? "it is made again from its stripe"
                                                    : "it has no other copy");
  on_wrong_(item.chunk, extent);
}

msg::Scrub::Reply Scrubber::figures() const {
  msg::Scrub::Reply out = figures_;
  out.running = running_;
  out.rate_bytes_per_s = pool_.config().scrub_rate_bytes_per_s;
  return out;
}

}  // namespace stdchk::manager
