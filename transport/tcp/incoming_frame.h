#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "transport/tcp/frame.h"
#include "transport/tcp/pieces.h"
#include "transport/tcp/shared_regions.h"

namespace stdchk::transport::tcp {

/// An IncomingFrame collects the frames of a peer, one after the other: the header, then the
/// content.
///
/// Decrypted bytes go straight to where they belong: the caller has room() filled, and then says
/// add(). When the header is complete, the caller decodes it and names the place of the content.
/// Owns: the memory of messages.
class IncomingFrame {
 public:
  /// Returns where the next bytes of the stream go. It is not empty.
  MutableByteSpan room() {
    return in_header() ? MutableByteSpan(bytes_).subspan(got_) : target_.pieces.front();
  }
  /// `bytes` have been put into room(). Returns true when they complete the header.
  bool add(std::size_t bytes) {
    if (!in_header()) {
      target_.pieces.drop(bytes);
      return false;
    }
    got_ += bytes;
    return !in_header();
  }
  /// Returns false when the header is not valid.
  bool decode();
  const FrameHeader& header() const { return header_; }
  bool is_complete() const { return !in_header() && target_.pieces.left() == 0; }
  /// Ends a complete frame: the next bytes belong to the next header. message() stays valid.
  void next() {
    got_ = 0;
    target_ = {};
  }

  /// The content is a message.
  void expect_message();
  ByteSpan message() const { return message_; }
  std::vector<std::byte> take_message() { return std::exchange(message_, {}); }
  /// Keeps the memory of a short message for the next message.
  void give_back(std::vector<std::byte> message);

  /// The content goes to `target`.
  void expect_content(Target target) { target_ = std::move(target); }
  /// Returns false when the peer must not write the place of the content any more.
  bool may_write_target() { return target_.guard.is_write_allowed(); }
  bool writes(const TcpRegion& region) const { return target_.region == &region; }

 private:
  bool in_header() const { return got_ < bytes_.size(); }

  FrameHeader::Bytes bytes_{};
  std::size_t got_ = 0;
  FrameHeader header_;
  Target target_;
  std::vector<std::byte> message_;
};

}  // namespace stdchk::transport::tcp
