#include "client/write/equal_chunks.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kSearchesMax = 3;

}  // namespace

void EqualChunks::compare_with(FileId file, Version version) {
  similar_ = core_.host.maps().open(file, version);
}

void EqualChunks::read_similar() {
  if (similar_ == nullptr || similar_read_) return;
  if (similar_->error.has_value()) {
    similar_.reset();
    return;
  }
  if (!similar_->complete) return core_.host.maps().load_next(similar_);
  similar_read_ = true;
  known_.add(similar_->map);
  core_.naming->compare_with(known_.named_all());
}

EqualChunks::Found EqualChunks::find(const OutChunkPtr& chunk) {
  read_similar();
  const ChunkName& name = chunk->chunk.name;
  const auto answers = [&](const Extent& copy) STDCHK_REQUIRES(engine_lock) {
    return core_.host.is_alive(copy.benefactor);
  };
  if (auto known = known_.find(name);
      known.has_value() && known->length == chunk->chunk.length &&
      std::any_of(known->copies.begin(), known->copies.end(), answers)) {
    return {std::move(known), nullptr};
  }
  std::weak_ptr<OutChunk>& own = own_names_[name];
  if (OutChunkPtr target = own.lock();
      target != nullptr && target->step != OutChunk::Step::kDropped && target->live_bytes > 0 &&
      target->chunk.length == chunk->chunk.length) {
    return {std::nullopt, std::move(target)};
  }
  own = chunk;
  return {};
}

void EqualChunks::give_up_similar() {
  if (similar_ == nullptr) return;
  known_.clear();
  given_up_ = std::move(similar_);
  for (const auto& [offset, entry] : written_.overlay().entries()) {
    const OutChunkPtr& chunk = entry.piece.chunk;
    if (chunk == nullptr || chunk->step != OutChunk::Step::kStored || chunk->ours ||
        chunk->search_under_way || !chunk->chunk.name.is_named()) {
      continue;
    }
    chunk->search_under_way = true;
    to_find_.push_back(chunk);
  }
  core_.schedule();
}

bool EqualChunks::find_again(const OutChunkPtr& chunk) {
  if (core_.error.has_value() || chunk->ours || !chunk->chunk.name.is_named()) return false;
  if (chunk->search_under_way) return true;
  if (chunk->searches == kSearchesMax) return false;
  ++chunk->searches;
  chunk->search_under_way = true;
  to_find_.push_back(chunk);
  core_.schedule();
  return true;
}

void EqualChunks::plan(Work& work) {
  if (to_find_.empty()) {
    if (given_up_ != nullptr) space_.renew_patience();
    return given_up_.reset();
  }
  msg::Place place;
  place.session = core_.id;
  std::vector<OutChunkPtr> batch;
  while (!to_find_.empty() && batch.size() < limits::kPlaceBatchMax) {
    place.chunks.push_back({to_find_.back()->chunk.name, to_find_.back()->chunk.length});
    batch.push_back(std::move(to_find_.back()));
    to_find_.pop_back();
  }
  core_.call(work, std::move(place),
             [this, batch = std::move(batch), given_up = given_up_](const rpc::Answer& answer)
                 STDCHK_REQUIRES(engine_lock) {
                   on_found(batch, answer);
                   // Unless the manager holds the chunks, the image in which they were found must
                   // stay pinned.
                   if (!answer.has_value() && given_up != nullptr) similar_ = given_up;
                 });
}

void EqualChunks::on_found(const std::vector<OutChunkPtr>& batch, const rpc::Answer& answer) {
  const auto* reply = answer.has_value() ? std::get_if<msg::Place::Reply>(&*answer) : nullptr;
  for (const OutChunkPtr& chunk : batch) chunk->search_under_way = false;
  if (reply != nullptr) {
    for (const auto& found : reply->existing) {
      if (found.index < batch.size()) batch[found.index]->chunk.copies = found.chunk.copies;
    }
  }
  core_.schedule();
  core_.notify();
}

void EqualChunks::forget_similar() {
  known_.clear();
  similar_.reset();
  given_up_.reset();
}

}  // namespace stdchk::client
