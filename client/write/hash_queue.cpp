#include "client/write/hash_queue.h"

#include "core/chunk/naming.h"

namespace stdchk::client {

std::vector<OutChunkPtr> HashQueue::take() {
  std::vector<OutChunkPtr> chunks;
  for (; !to_hash_.empty(); to_hash_.pop_front()) {
    OutChunkPtr& chunk = to_hash_.front();
    if (ledger_.unneeded(*chunk)) {
      ledger_.drop(*chunk, SlotState::kHashing);
    } else {
      chunks.push_back(std::move(chunk));
    }
  }
  return chunks;
}

/// Groups short chunks: several are named faster together. Passes on one chunk at a time for the
/// reactor's thread: each is copied before the next one enters the processor's cache.
void HashQueue::plan(Work& work) {
  std::uint64_t group_bytes = kNamedTogetherBytes;
  for (OutChunkPtr& chunk : take()) {
    group_bytes += chunk->chunk.length;
    if (group_bytes > kNamedTogetherBytes) {
      work.hash.emplace_back();
      group_bytes = chunk->chunk.length;
    }
    work.hash.back().push_back(std::move(chunk));
  }
  if (to_checksum_.empty()) return;
  work.checksum.push_back(std::move(to_checksum_.front()));
  to_checksum_.pop_front();
  if (!to_checksum_.empty()) core_.schedule();
}

void HashQueue::drop_all() {
  for (std::deque<OutChunkPtr>* const queue : {&to_hash_, &to_checksum_}) {
    std::deque<OutChunkPtr> chunks;
    chunks.swap(*queue);
    for (const OutChunkPtr& chunk : chunks) ledger_.drop(*chunk, SlotState::kHashing);
  }
}

}  // namespace stdchk::client
