#include "tests/sim/plain_operations.h"

#include <algorithm>
#include <cstring>

#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"

namespace stdchk::sim {

namespace {

constexpr int kRoundsMax = 4;

}  // namespace

// ---- writing ------------------------------------------------------------------------------------

StoreOperation::StoreOperation(PlainClient& of, FileId parent, std::string name,
                               std::vector<Part> parts, bool truncate, PlainClient::Done done)
    : client_(of),
      parent_(parent),
      name_(std::move(name)),
      parts_(std::move(parts)),
      truncate_(truncate),
      done_(std::move(done)) {}

void StoreOperation::start() {
  end_ = client_.now() + kOperationTime;
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    for (std::size_t at = 0; at < part.bytes.size(); at += limits::kChunkBytesMin) {
      Piece piece;
      const std::size_t length =
          std::min<std::size_t>(limits::kChunkBytesMin, part.bytes.size() - at);
      const ByteSpan content = ByteSpan(part.bytes).subspan(at, length);
      piece.file_offset = part.offset + at;
      piece.chunk.length = static_cast<std::uint32_t>(length);
      piece.chunk.crc = crc32c(0, content);
      piece.chunk.name = name_chunk(content);
      piece.at = bytes;
      bytes += limits::kExtentHeaderBytes + length;
      pieces_.push_back(piece);
    }
  }
  if (bytes > 0) buffer_ = client_.make_buffer(bytes);
  std::size_t next = 0;
  for (const Part& part : parts_) {
    for (std::size_t at = 0; at < part.bytes.size(); at += limits::kChunkBytesMin) {
      const Piece& piece = pieces_[next++];
      std::memcpy(buffer_->bytes.data() + piece.at + limits::kExtentHeaderBytes,
                  part.bytes.data() + at, piece.chunk.length);
    }
  }
  msg::OpenSession request;
  request.client = client_.id();
  request.parent = parent_;
  request.name = name_;
  request.mode = 0644;
  request.truncate = truncate_;
  request.want_bytes = bytes_missing();
  client_.send(open_number_, client_.id(), request, end_,
               [self = shared_from_this(), request](rpc::Answer answer) {
                 if (ending_of(answer).maybe) self->close_late(request);
                 self->on_open(std::move(answer));
               });
}

/// Repeats an open without an answer under its number, then closes the session. The open may have
/// been executed: it would leave a session, and an empty file that only this client sees.
void StoreOperation::close_late(const msg::OpenSession& request) {
  client_.insist(open_number_, request.client, request,
                 [self = shared_from_this()](const rpc::Answer& answer) {
                   if (!answer.has_value()) return;
                   msg::CloseSession close;
                   close.session = std::get<msg::OpenSession::Reply>(*answer).session;
                   close.aborted = true;
                   self->client_.insist(rpc::next_call_id(), self->client_.id(), close,
                                        [](const rpc::Answer&) {});
                 });
}

std::uint64_t StoreOperation::bytes_missing() const {
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.stored) bytes += extent_bytes(piece.chunk.length);
  }
  return bytes;
}

void StoreOperation::on_open(rpc::Answer answer) {
  if (!answer.has_value()) return done_(ending_of(answer));
  const auto& reply = std::get<msg::OpenSession::Reply>(*answer);
  session_ = reply.session;
  client_.add_grants(session_, reply.grants);
  room_ = reply.grants;
  place();
}

void StoreOperation::place() {
  if (++rounds_ > kRoundsMax || client_.now() >= end_) {
    return end_badly({{Code::kDeadline, 0, "sim.store"}, {}}, false);
  }
  msg::Place request;
  request.session = session_;
  std::vector<std::size_t> asked;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].stored) continue;
    asked.push_back(i);
    request.chunks.push_back({pieces_[i].chunk.name, pieces_[i].chunk.length});
  }
  if (rounds_ > 1) request.want_bytes = bytes_missing();
  request.avoid = avoid_;
  if (asked.empty()) return commit();
  client_.call(request, end_, [self = shared_from_this(), asked](rpc::Answer answer) {
    self->on_place(asked, std::move(answer));
  });
}

void StoreOperation::on_place(const std::vector<std::size_t>& asked, rpc::Answer answer) {
  if (!answer.has_value()) return end_badly(answer.error(), false);
  const auto& reply = std::get<msg::Place::Reply>(*answer);
  client_.add_grants(session_, reply.grants);
  room_.insert(room_.end(), reply.grants.begin(), reply.grants.end());
  for (const auto& existing : reply.existing) {
    Piece& piece = pieces_[asked[existing.index]];
    piece.chunk.copies = existing.chunk.copies;
    piece.stored = piece.existing = true;
  }
  carve_and_write();
}

void StoreOperation::carve_and_write() {
  std::vector<std::size_t> to_write;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (piece.stored) continue;
    const std::uint64_t need = extent_bytes(piece.chunk.length);
    for (Grant& grant : room_) {
      if (grant.length < need) continue;
      if (std::find(avoid_.begin(), avoid_.end(), grant.benefactor) != avoid_.end()) continue;
      piece.chunk.copies = {{grant.benefactor, grant.offset}};
      grant.offset += need;
      grant.length -= need;
      to_write.push_back(i);
      break;
    }
  }
  // no chunk to write: every chunk is placed, or the grants are too small
  if (to_write.empty()) return place();
  in_flight_ = to_write.size();
  const auto self = shared_from_this();
  for (const std::size_t index : to_write) {
    const Piece& piece = pieces_[index];
    const ExtentHeader header{piece.chunk.name, piece.chunk.length, piece.chunk.crc, {}, 0};
    encode_extent_header(header, buffer_->bytes.data() + piece.at);
    client_.transfer(true, piece.chunk.copies[0].benefactor, piece.chunk.copies[0].offset,
                     {buffer_->piece(piece.at, limits::kExtentHeaderBytes),
                      buffer_->piece(piece.at + limits::kExtentHeaderBytes, piece.chunk.length)},
                     [self, index](Status status) { self->on_written(index, std::move(status)); });
  }
}

void StoreOperation::on_written(std::size_t index, Status status) {
  Piece& piece = pieces_[index];
  if (status.has_value()) {
    piece.stored = true;
  } else {
    abandoned_.push_back(piece.chunk.copies[0]);
    avoid_.push_back(piece.chunk.copies[0].benefactor);
    piece.chunk.copies.clear();
  }
  if (--in_flight_ == 0) place();
}

void StoreOperation::commit() {
  msg::Commit request;
  request.session = session_;
  for (const Piece& piece : pieces_) {
    Slice slice;
    slice.file_offset = piece.file_offset;
    slice.length = piece.chunk.length;
    slice.chunk = static_cast<std::uint32_t>(request.written.chunks.size());
    request.written.chunks.push_back(piece.chunk);
    request.written.slices.push_back(slice);
    request.size_bytes = std::max(request.size_bytes, piece.file_offset + piece.chunk.length);
  }
  request.mtime_ns = client_.node().clock.wall_ns();
  request.abandoned = abandoned_;
  request.end = true;
  // No transfer is in flight and none follows. From now on, even before the answer, the manager may
  // grant the rest of these extents to others.
  client_.forget(session_);
  client_.call(request, end_, [self = shared_from_this()](rpc::Answer answer) {
    if (!answer.has_value()) {
      self->check_held(answer.error().error);
      return self->end_badly(answer.error(), ending_of(answer).maybe);
    }
    self->done_({});
  });
}

/// Checks rule M4: if the manager knows the session and rejects its map, no chunk that the manager
/// called present may be missing.
void StoreOperation::check_held(const Error& why) {
  if (why.code != Code::kInvalidArgument || client_.cluster_.manager() == nullptr) return;
  const manager::ChunkTable& chunks = client_.cluster_.manager()->state().chunks();
  for (const Piece& piece : pieces_) {
    const Chunk& chunk = piece.chunk;
    if (!piece.existing || !chunks.find_all(chunk.name, chunk.length).empty()) continue;
    client_.wrong_.push_back("M4: a chunk of " + name_ + " was answered as there and is gone");
  }
}

void StoreOperation::end_badly(const rpc::Failure& why, bool maybe) {
  client_.forget(session_);
  msg::CloseSession request;
  request.session = session_;
  request.aborted = true;
  request.writes_in_flight = !abandoned_.empty();  // these writes may land late
  // Until the session is closed, this client sees an empty file.
  const std::uint64_t number = rpc::next_call_id();
  const auto ended = [self = shared_from_this(), request, number, why, maybe,
                      as = client_.id()](const rpc::Answer& answer) {
    const bool lost = ending_of(answer).maybe;
    if (lost) self->client_.insist(number, as, request, [](const rpc::Answer&) {});
    self->done_({fail(why.error), maybe || lost});
  };
  client_.send(number, client_.id(), request, client_.now() + limits::kCallDeadline, ended);
}

// ---- reading ------------------------------------------------------------------------------------

void LoadOperation::start() {
  end_ = client_.now() + kOperationTime;
  msg::Lookup request;
  request.client = client_.id();
  request.parent = parent_;
  request.name = name_;
  client_.call(request, end_, [self = shared_from_this()](rpc::Answer answer) {
    if (!answer.has_value()) return self->finish(fail(answer.error().error));
    self->file_ = std::get<msg::Lookup::Reply>(*answer).attributes.id;
    self->ask_map();
  });
}

msg::GetMap LoadOperation::next_page() const {
  msg::GetMap request;
  request.client = client_.id();
  request.file = file_;
  request.version = version_;
  request.first_slice = slices_seen_;
  return request;
}

void LoadOperation::ask_map() {
  client_.call(next_page(), end_, [self = shared_from_this()](rpc::Answer answer) {
    self->on_map(std::move(answer));
  });
}

void LoadOperation::on_map(rpc::Answer answer) {
  if (!answer.has_value()) return finish(fail(answer.error().error));
  auto& reply = std::get<msg::GetMap::Reply>(*answer);
  version_ = reply.attributes.version;
  bytes_.resize(reply.attributes.size_bytes);
  slice_count_ = reply.slice_count;
  page_ = std::move(reply.page);
  slices_seen_ += page_.slices.size();
  next_ = 0;
  read_next();
}

/// Asks the manager for the chunks' places again: copies may have moved.
void LoadOperation::look_again(Status why) {
  slices_seen_ -= page_.slices.size();
  copy_ = 0;
  client_.call(next_page(), end_, [self = shared_from_this(), why](rpc::Answer answer) {
    if (!answer.has_value()) return self->finish(fail(answer.error().error));
    const auto& page = std::get<msg::GetMap::Reply>(*answer).page;
    if (page == self->page_) return self->finish(fail(why.error()));
    self->on_map(std::move(answer));
  });
}

void LoadOperation::read_next() {
  if (next_ == page_.slices.size()) {
    if (slices_seen_ < slice_count_) return ask_map();
    return finish(std::move(bytes_));
  }
  const Chunk& chunk = page_.chunks[page_.slices[next_].chunk];
  if (chunk.copies.empty()) return finish(fail(Code::kDataLost, "sim.load"));
  buffer_ = client_.make_buffer(chunk.length);
  const Extent& copy = chunk.copies[copy_];
  client_.transfer(false, copy.benefactor, copy.offset + limits::kExtentHeaderBytes,
                   {buffer_->piece(0, chunk.length)}, [self = shared_from_this()](Status status) {
                     self->on_chunk(std::move(status));
                   });
}

void LoadOperation::on_chunk(Status status) {
  const Slice& slice = page_.slices[next_];
  const Chunk& chunk = page_.chunks[slice.chunk];
  if (status.has_value() && crc32c(0, ByteSpan(buffer_->bytes).first(chunk.length)) != chunk.crc) {
    status = fail(Code::kCorrupt, "sim.load");
  }
  if (!status.has_value() && copy_ + 1 < chunk.copies.size()) {
    ++copy_;
    return read_next();
  }
  if (!status.has_value()) return look_again(std::move(status));
  copy_ = 0;
  if (slice.file_offset + slice.length > bytes_.size() ||
      slice.chunk_offset + slice.length > chunk.length) {
    return finish(fail(Code::kCorrupt, "sim.load.map"));
  }
  std::memcpy(bytes_.data() + slice.file_offset, buffer_->bytes.data() + slice.chunk_offset,
              slice.length);
  ++next_;
  read_next();
}

void LoadOperation::finish(Result<std::vector<std::byte>> result) {
  if (version_ != 0) {
    msg::Unpin request;
    request.client = client_.id();
    request.file = file_;
    request.version = version_;
    client_.call(request, client_.now() + limits::kCallDeadline, [](rpc::Answer) {});
  }
  done_(std::move(result));
}

}  // namespace stdchk::sim
