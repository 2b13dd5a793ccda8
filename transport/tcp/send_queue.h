#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/limits.h"
#include "core/values/types.h"
#include "transport/tcp/clear_content.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/pieces.h"
#include "transport/tcp/region.h"
#include "transport/tcp/transfer_table.h"

namespace stdchk::transport::tcp {

/// A SendQueue has what one link is to send, and cuts it into frames and these into TLS records.
///
/// Frames without content go first, then grants. Messages and content take turns, frame by frame.
/// A transfer lets the next one go on after 2 MiB. Content that goes in clear is announced here,
/// and handed to the ClearContent.
///
/// Owns: copies of messages. Content is memory of transfers and of regions.
/// Limits: kQueuedMessagesMax messages of kQueuedBytesMax bytes together, kTransfersMax answers.
class SendQueue {
 public:
  static constexpr std::size_t kQueuedMessagesMax = 128;
  static constexpr std::size_t kQueuedBytesMax = 4 * limits::kMiB;

  /// A Content is the unsent part of a write, or of the answer to a read.
  struct Content {
    FrameHeader next;  ///< of the next frame, without its length
    Pieces pieces;
    const TcpRegion* region = nullptr;  ///< of an answer
    std::size_t burst_bytes = 0;        ///< sent since another transfer had its turn
  };

  SendQueue(TransferTable& transfers, ClearContent& clear) : transfers_(transfers), clear_(clear) {}

  /// Copies the message. Returns false when the queue is full.
  bool add_message(ByteSpan message);
  void add_note(const FrameHeader& header) { notes_.push_back(header); }
  void add_grant(const FrameHeader& header, const GrantContent& content);
  void add_content(Content content) { contents_.push_back(std::move(content)); }

  // Answers to transfers of the peer.
  /// Returns false when the peer has more transfers in flight than an honest peer starts.
  bool reserve_answer();
  void answer_write(std::uint64_t id);
  void answer_read(std::uint64_t id, const Target& target);

  /// True when next_record() has bytes.
  bool has_frames() const {
    return out_.left() || !notes_.empty() || !grants_.empty() || !messages_.empty() ||
           may_send_content();
  }
  /// Returns the next bytes of the stream of frames, at most one TLS record. They are valid until
  /// the next call. A whole record that lies in one piece of memory is not copied.
  ByteSpan next_record();

  /// True when an answer reads memory of `region`.
  bool reads(const TcpRegion& region) const;

 private:
  struct PresentedGrant {
    FrameHeader header;
    GrantContent::Bytes content;
  };
  /// The frame that is being sent.
  struct Outgoing {
    FrameHeader::Bytes header{};
    std::size_t header_left = 0;
    Pieces content;
    std::vector<std::byte> message;     ///< memory of `content`, unless a transfer or region has it
    std::uint64_t write = 0;            ///< the write whose last part the frame is
    const TcpRegion* region = nullptr;  ///< of an answer's content
    bool is_content = false;            ///< of a transfer
    bool left() const { return header_left > 0 || content.left() > 0; }
  };

  bool may_send_content() const {
    return !contents_.empty() && (!clear_.in_use() || clear_.may_announce());
  }
  /// Begins the next frame. Returns false when there is none.
  bool next_frame();
  void next_content();
  std::size_t next_length(const Content& content) const;
  void begin_frame(const FrameHeader& header, Pieces content = {});
  void end_frame();

  TransferTable& transfers_;
  ClearContent& clear_;
  std::deque<FrameHeader> notes_;  ///< frames without content
  std::deque<PresentedGrant> grants_;
  std::deque<std::vector<std::byte>> messages_;
  std::size_t message_bytes_ = 0;
  std::deque<Content> contents_;
  std::size_t answers_ = 0;  ///< reserved, and not sent yet
  bool message_was_last_ = false;
  Outgoing out_;
  std::vector<std::byte> returned_;  ///< the message whose last bytes next_record() has returned
};

}  // namespace stdchk::transport::tcp
