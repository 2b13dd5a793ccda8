#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/crypto/secret.h"
#include "transport/tcp/pieces.h"
#include "transport/tcp/tls.h"

struct evp_cipher_ctx_st;

namespace stdchk::transport::tcp {

/// A ContentTag authenticates the content frames of one direction, in their order.
///
/// It computes the tag of ChaCha20-Poly1305 (RFC 8439) for an empty text. The content is the
/// additional data, and the frame's number is the nonce. So the tag covers order, length and
/// content.
class ContentTag {
 public:
  static constexpr std::size_t kBytes = 16;
  using Tag = std::array<std::byte, kBytes>;

  explicit ContentTag(const Secret& key);
  void begin();
  void add(ByteSpan content);
  Tag end();

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::uint64_t frames_ = 0;
};

/// A ContentChannel carries the content of a link's transfers in clear, on a TCP connection of its
/// own. The headers of these frames stay inside TLS.
///
/// Owns: the socket. Threads: its endpoint's.
/// Errors: Io::kLost, also for a frame with a wrong tag. The bytes of such a frame
///   stay within the place that its header names, and the frame is not acknowledged.
class ContentChannel {
 public:
  /// The first byte on the connection, with which TLS never begins. The link's token follows.
  static constexpr std::byte kFirstByte{0xC1};
  static constexpr std::size_t kGreetingBytes = 1 + TlsSession::kTokenBytes;
  using Io = TlsSession::Io;

  ContentChannel(int socket, const Secret& outgoing, const Secret& incoming);
  ~ContentChannel();
  ContentChannel(const ContentChannel&) = delete;
  ContentChannel& operator=(const ContentChannel&) = delete;

  int socket() const { return socket_; }
  void close();

  bool is_sending() const { return out_.left() > 0 || out_tag_left_ > 0; }
  /// Begins to send a frame. No other frame may be under way.
  void begin_send(const Pieces& content);
  /// Returns kDone when the socket has taken the whole frame.
  Io send();

  bool is_receiving() const { return in_.left() > 0 || in_tag_left_ > 0; }
  void begin_receive(const Pieces& content);
  /// Returns kDone when the whole frame is in memory and its tag is right.
  Io receive();

 private:
  int socket_;
  ContentTag out_auth_;
  ContentTag in_auth_;
  Pieces out_;
  ContentTag::Tag out_tag_{};
  std::size_t out_tag_left_ = 0;
  Pieces in_;
  ContentTag::Tag in_tag_{};
  std::size_t in_tag_left_ = 0;
};

}  // namespace stdchk::transport::tcp
