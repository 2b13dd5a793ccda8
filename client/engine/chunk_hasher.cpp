#include "client/engine/chunk_hasher.h"

#include <array>
#include <utility>

#include "core/base/thread.h"

namespace stdchk::client {

ChunkHasher::ChunkHasher(Shared& shared, Executor& executor, msg::WriterTotals& totals,
                         const Config& config)
    : shared_(shared), executor_(executor), totals_(totals), encrypts_(config.encrypts) {
  if (config.key.has_value()) sealer_.emplace(*config.key);
  STDCHK_ASSERT(sealer_.has_value() || !encrypts_);
}

void ChunkHasher::search_later(Work::Search search) {
  executor_.run([this, search = std::move(search)]() mutable {
    search.scan->find(search.session->boundaries());
    std::vector<OutChunkPtr> chunks;
    {
      const Lock lock(shared_.mutex);
      chunks = search.session->cutter().scanned(*search.scan);
      search = {};
    }
    hash(std::move(chunks));
  });
}

void ChunkHasher::hash_later(std::vector<OutChunkPtr> chunks) {
  executor_.run([this, chunks = std::move(chunks)]() mutable { hash(std::move(chunks)); });
}

/// Computes CRCs, and names where wanted, and encrypts. All chunks must be of one session.
void ChunkHasher::hash(std::vector<OutChunkPtr> chunks) {
  if (chunks.empty()) return;
  for (const OutChunkPtr& chunk : chunks) checksum(*chunk);
  std::vector<OutChunkPtr> to_name;
  Lock lock(shared_.mutex);
  const SessionPtr session = chunks.front()->session;
  for (const OutChunkPtr& chunk : chunks) {
    if (session->naming().names(chunk->plain_crc)) to_name.push_back(chunk);
    chunk->encrypted = encrypts_;
  }
  if (!to_name.empty()) name(lock, to_name);
  if (encrypts_) {
    const Unlocked unlocked(lock);
    for (const OutChunkPtr& chunk : chunks) seal(*chunk);
  }
  for (const OutChunkPtr& chunk : chunks) session->hashed(chunk);
  to_name.clear();
  chunks.clear();
}

void ChunkHasher::checksum(OutChunk& chunk) {
  if (chunk.has_crc) return;
  const ChunkPieces content = chunk.content();
  chunk.plain_crc = chunk.chunk.crc = crc32c(crc32c(0, content[0]), content[1]);
  chunk.has_crc = true;
}

void ChunkHasher::finish_checksum(Lock& lock, OutChunkPtr chunk) {
  if (chunk == nullptr) return;
  const SessionPtr session = chunk->session;
  if (encrypts_ || session->naming().names_all()) {
    return session->hashes().add(std::move(chunk));
  }
  {
    const Unlocked unlocked(lock);
    checksum(*chunk);
  }
  if (session->naming().names(chunk->plain_crc)) return session->hashes().add(std::move(chunk));
  session->hashed(chunk);
}

/// Encrypts the chunk in its place. From then on its name and CRC describe the stored bytes.
void ChunkHasher::seal(OutChunk& chunk) const {
  std::array<MutableByteSpan, 2> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Segment& segment = chunk.segments[i];
    if (segment.slot != nullptr) {
      bytes[i] = {segment.slot->data + segment.offset, segment.length};
    }
  }
  chunk.chunk.name = sealer_->seal(bytes, chunk.chunk.name);
  chunk.chunk.crc = crc32c(crc32c(0, bytes[0]), bytes[1]);
}

/// Gives each chunk its name. Hashes only contents that `names_` does not know. Releases the lock
/// meanwhile.
void ChunkHasher::name(Lock& lock, std::span<const OutChunkPtr> chunks) {
  const Duration before = thread_time();
  std::vector<ContentTag> tags;
  {
    const Unlocked unlocked(lock);
    tags.reserve(chunks.size());
    for (const OutChunkPtr& chunk : chunks) tags.push_back(tagger_.tag(chunk->content()));
  }
  const std::vector<std::size_t> unknown = recognise(chunks, tags);
  if (!unknown.empty()) {
    std::unique_ptr<Namer> namer = take_namer();
    std::vector<ChunkName> names(unknown.size());
    {
      const Unlocked unlocked(lock);
      if (namer == nullptr) namer = std::make_unique<Namer>();
      std::vector<ChunkPieces> contents;
      contents.reserve(unknown.size());
      for (const std::size_t i : unknown) contents.push_back(chunks[i]->content());
      namer->name(contents, names);
    }
    for (std::size_t k = 0; k < unknown.size(); ++k) {
      chunks[unknown[k]]->chunk.name = names[k];
      names_.insert(tags[unknown[k]], names[k]);
    }
    namers_.push_back(std::move(namer));
  }
  totals_.naming_ns += static_cast<std::uint64_t>((thread_time() - before).count());
}

/// Gives chunks with known content their names. Returns the indices of the other chunks.
std::vector<std::size_t> ChunkHasher::recognise(std::span<const OutChunkPtr> chunks,
                                                const std::vector<ContentTag>& tags) {
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto known = names_.find(tags[i]);
    if (!known.has_value()) {
      unknown.push_back(i);
      continue;
    }
    chunks[i]->chunk.name = *known;
    recognised_bytes_ += chunks[i]->chunk.length;
  }
  return unknown;
}

/// Returns an idle engine, or nullptr.
std::unique_ptr<Namer> ChunkHasher::take_namer() {
  if (namers_.empty()) return nullptr;
  std::unique_ptr<Namer> namer = std::move(namers_.back());
  namers_.pop_back();
  return namer;
}

}  // namespace stdchk::client
