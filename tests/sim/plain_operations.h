#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// After this time an operation starts nothing new; what is under way ends by its own deadline.
inline constexpr Duration kOperationTime = std::chrono::seconds(15);

/// Tells whether a change may have happened although its answer is an error.
inline Ending ending_of(const rpc::Answer& answer) {
  if (answer.has_value()) return {};
  const Error why = answer.error().error;
  const bool maybe = why.code == Code::kDeadline || why.code == Code::kPeerLost ||
                     why.code == Code::kManagerLost || why.code == Code::kFenced ||
                     why.code == Code::kBusy || why.code == Code::kMalformed;
  return {fail(why), maybe};
}

/// A StoreOperation writes parts of a file in one session: open, place, write, commit.
struct StoreOperation final : std::enable_shared_from_this<StoreOperation> {
  struct Piece {
    Chunk chunk;
    std::uint64_t file_offset = 0;
    std::size_t at = 0;  ///< position in the buffer of the header, which the content follows
    bool stored = false;
    bool existing = false;  ///< the manager has said that this chunk is in the pool
  };

  StoreOperation(PlainClient& of, FileId parent, std::string name, std::vector<Part> parts,
                 bool truncate, PlainClient::Done done);
  void start();

 private:
  void on_open(rpc::Answer answer);
  void close_late(const msg::OpenSession& request);
  void place();
  void on_place(const std::vector<std::size_t>& asked, rpc::Answer answer);
  void carve_and_write();
  void on_written(std::size_t index, Status status);
  void commit();
  void check_held(const Error& why);
  void end_badly(const rpc::Failure& why, bool maybe);
  std::uint64_t bytes_missing() const;

  PlainClient& client_;
  const FileId parent_;
  const std::string name_;
  const std::vector<Part> parts_;
  const bool truncate_;
  PlainClient::Done done_;
  Time end_{};
  std::shared_ptr<PlainClient::Buffer> buffer_;
  std::vector<Piece> pieces_;
  const std::uint64_t open_number_ = rpc::next_call_id();
  SessionId session_;
  std::vector<Grant> room_;  ///< unused rest of the grants
  std::vector<BenefactorId> avoid_;
  std::vector<Extent> abandoned_;
  std::size_t in_flight_ = 0;
  int rounds_ = 0;
};

/// A LoadOperation reads the newest version of a file and checks each chunk.
struct LoadOperation final : std::enable_shared_from_this<LoadOperation> {
  LoadOperation(PlainClient& of, FileId parent, std::string name, PlainClient::Loaded done)
      : client_(of), parent_(parent), name_(std::move(name)), done_(std::move(done)) {}
  void start();

 private:
  msg::GetMap next_page() const;
  void ask_map();
  void on_map(rpc::Answer answer);
  void look_again(Status why);
  void read_next();
  void on_chunk(Status status);
  void finish(Result<std::vector<std::byte>> result);

  PlainClient& client_;
  const FileId parent_;
  const std::string name_;
  PlainClient::Loaded done_;
  Time end_{};
  FileId file_;
  Version version_ = 0;
  std::vector<std::byte> bytes_;
  ChunkMap page_;
  std::uint64_t slices_seen_ = 0;
  std::uint64_t slice_count_ = 0;
  std::size_t next_ = 0;
  std::size_t copy_ = 0;  ///< index of the copy from which the current chunk is read
  std::shared_ptr<PlainClient::Buffer> buffer_;
};

}  // namespace stdchk::sim
