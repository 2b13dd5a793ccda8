#include "transport/tcp/content_channel.h"

#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"

namespace stdchk::transport::tcp {
namespace {

/// Bytes to authenticate in one step, while they are in the processor's cache.
constexpr std::size_t kStepBytes = 128 * limits::kKiB;
constexpr std::size_t kNonceBytes = 12;
constexpr unsigned kByteBits = 8;

const unsigned char* data_of(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

void ContentTag::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

ContentTag::ContentTag(const Secret& key) : context_(EVP_CIPHER_CTX_new()) {
  STDCHK_ASSERT(context_ != nullptr);
  STDCHK_ASSERT(EVP_EncryptInit_ex(context_.get(), EVP_chacha20_poly1305(), nullptr,
                                   data_of(key.bytes), nullptr) == 1);
}

void ContentTag::begin() {
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof frames_; ++i) {
    nonce[i] = static_cast<unsigned char>(frames_ >> (kByteBits * i));
  }
  ++frames_;
  STDCHK_ASSERT(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1);
}

void ContentTag::add(ByteSpan content) {
  int ignored = 0;
  STDCHK_ASSERT(EVP_EncryptUpdate(context_.get(), nullptr, &ignored, data_of(content),
                                  static_cast<int>(content.size())) == 1);
}

ContentTag::Tag ContentTag::end() {
  Tag tag{};
  int ignored = 0;
  STDCHK_ASSERT(EVP_EncryptFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(tag.data()),
                                    &ignored) == 1);
  STDCHK_ASSERT(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kBytes, tag.data()) ==
                1);
  return tag;
}

ContentChannel::ContentChannel(int socket, const Secret& outgoing, const Secret& incoming)
    : socket_(socket), out_auth_(outgoing), in_auth_(incoming) {}

ContentChannel::~ContentChannel() { close(); }

void ContentChannel::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void ContentChannel::begin_send(const Pieces& content) {
  STDCHK_ASSERT(!is_sending());
  out_ = content;
  out_auth_.begin();
  for (Pieces rest = content; rest.left() > 0;) {
    const MutableByteSpan front = rest.front();
    out_auth_.add(front);
    rest.drop(front.size());
  }
  out_tag_ = out_auth_.end();
  out_tag_left_ = out_tag_.size();
}

ContentChannel::Io ContentChannel::send() {
  while (is_sending()) {
    std::array<iovec, kPiecesMax + 1> parts;
    std::size_t count = 0;
    for (Pieces rest = out_; rest.left() > 0;) {
      const MutableByteSpan front = rest.front();
      parts[count++] = {front.data(), front.size()};
      rest.drop(front.size());
    }
    parts[count++] = {out_tag_.data() + out_tag_.size() - out_tag_left_, out_tag_left_};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t result = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) return errno == EAGAIN ? Io::kBlocked : Io::kLost;
    auto sent = static_cast<std::size_t>(result);
    while (sent > 0 && out_.left() > 0) {
      const std::size_t part = std::min(sent, out_.front().size());
      out_.drop(part);
      sent -= part;
    }
    out_tag_left_ -= sent;
  }
  return Io::kDone;
}

void ContentChannel::begin_receive(const Pieces& content) {
  STDCHK_ASSERT(!is_receiving());
  in_ = content;
  in_tag_left_ = in_tag_.size();
  in_auth_.begin();
}

ContentChannel::Io ContentChannel::receive() {
  while (is_receiving()) {
    const bool in_content = in_.left() > 0;
    const MutableByteSpan whole =
        in_content ? in_.front() : MutableByteSpan(in_tag_).subspan(in_tag_.size() - in_tag_left_);
    const MutableByteSpan into = whole.first(std::min(whole.size(), kStepBytes));
    const ssize_t result = ::recv(socket_, into.data(), into.size(), 0);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0 && errno == EAGAIN) return Io::kBlocked;
    if (result <= 0) return Io::kLost;
    const auto got = static_cast<std::size_t>(result);
    if (in_content) {
      in_auth_.add(into.first(got));
      in_.drop(got);
    } else {
      in_tag_left_ -= got;
    }
  }
  return equal(in_tag_, in_auth_.end()) ? Io::kDone : Io::kLost;
}

}  // namespace stdchk::transport::tcp
