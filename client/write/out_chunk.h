#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/net/peers.h"
#include "client/write/content_cutter.h"
#include "core/chunk/naming.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

class Session;

/// An OutChunk is a run of bytes that a session sends: cut from a slot, hashed, placed, written.
///
/// | step     | bytes are in | leaves when                                              |
/// |----------|--------------|----------------------------------------------------------|
/// | hashing  | slot         | CRC, and name if wanted, known -> asking, carving, stored|
/// | asking   | slot         | sent in a Place batch -> asked                           |
/// | asked    | slot         | answered: existing -> stored, else -> carving            |
/// | carving  | slot         | extents were carved -> writing                           |
/// | writing  | slot         | delivered to all -> stored; failed -> carving, elsewhere |
/// | stored   | the extents  |                                                          |
/// | dropped  | nowhere      | nothing refers to it, or the session has failed          |
struct OutChunk final {
  enum class Step : std::uint8_t {
    kHashing,
    kAsking,
    kAsked,
    kCarving,
    kWriting,
    kStored,
    kDropped
  };
  std::shared_ptr<Session> session;  ///< set while in the pipeline
  Chunk chunk;                       ///< includes copies that are being written
  std::uint64_t file_offset = 0;
  std::uint64_t live_bytes = 0;  ///< bytes of the overlay that refer to it
  Segments segments;             ///< where its bytes are in the window; empty when stored
  /// Index among the chunks that begin in its first slot; decides where its header lies.
  std::uint32_t order = 0;
  std::uint32_t failures = 0;
  std::uint32_t writing = 0;  ///< number of writes under way
  Step step = Step::kHashing;
  std::uint32_t plain_crc = 0;    ///< CRC32C of the bytes as the application wrote them
  bool has_crc = false;           ///< plain_crc is set, and so is chunk.crc
  bool encrypted = false;         ///< encrypted now or soon: window bytes must not be read
  bool ours = false;              ///< this session carved its extents, and has not committed them
  bool search_under_way = false;  ///< the manager is asked where its copies are
  std::uint32_t searches = 0;     ///< consecutive searches without a successful read

  bool in_window() const { return segments[0].slot != nullptr; }
  ChunkPieces content() const { return {piece(segments[0]), piece(segments[1])}; }
  /// Returns the part of the window that begins with the chunk's byte at `offset`.
  Segment from(std::uint32_t offset) const;

 private:
  static ByteSpan piece(const Segment& segment) {
    return segment.slot == nullptr ? ByteSpan() : segment.bytes();
  }
};
using OutChunkPtr = std::shared_ptr<OutChunk>;

/// A ChunkWrite is the transfer of a chunk to one benefactor.
struct ChunkWrite final : Transfer {
  OutChunkPtr chunk;
  std::unique_ptr<ChunkWrite> self;  ///< set while the transport has it

 protected:
  void finished(Status status) override;
};

/// A Work is work that a session leaves for the time after the lock.
struct Work {
  struct Search {
    std::shared_ptr<Session> session;
    ScanPtr scan;
  };
  std::vector<Search> search;
  std::vector<std::vector<OutChunkPtr>> hash;  ///< each group for one hash thread
  std::vector<OutChunkPtr> checksum;           ///< for the reactor's thread
  std::vector<std::unique_ptr<ChunkWrite>> write;
  struct Call {
    msg::Request request;
    std::function<void(rpc::Answer)> done;
    std::function<bool()> may_go{};  ///< see ManagerClient::call
    std::function<void(rpc::Answer)> late{};
  };
  std::vector<Call> calls;
};

}  // namespace stdchk::client
