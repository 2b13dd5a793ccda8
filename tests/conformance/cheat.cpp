#include "tests/conformance/cheat.h"

#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "core/base/limits.h"

namespace stdchk::conformance {

namespace {

using transport::Link;
using transport::LinkHandler;

enum class Kind : std::uint64_t { kUser, kData, kDone };

struct Head {
  Kind kind = Kind::kUser;
  std::uint64_t number = 0;
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::uint64_t last = 0;
};
constexpr std::size_t kPartBytes = limits::kMessageBytesMax - sizeof(Head);

using Regions = std::map<std::uint64_t, MutableByteSpan>;

class CheatLink final : public Link, public LinkHandler {
 public:
  explicit CheatLink(Regions& regions, LinkHandler* handler)
      : regions_(regions), handler_(handler) {}
  ~CheatLink() override {
    inner_.reset();
    finish_all(Code::kCancelled);
  }
  CheatLink(const CheatLink&) = delete;
  CheatLink& operator=(const CheatLink&) = delete;

  void set_inner(std::unique_ptr<Link> inner) { inner_ = std::move(inner); }

  void set_handler(LinkHandler& handler) override { handler_ = &handler; }
  bool connected() const override { return inner_->connected(); }
  Status send(ByteSpan message) override { return send_part({Kind::kUser}, message); }
  Status write(std::span<const transport::LocalPiece> pieces, const transport::RemoteKey& to,
               std::uint64_t offset, transport::Operation& operation) override {
    std::vector<std::byte> bytes;
    for (const auto& piece : pieces) {
      bytes.insert(bytes.end(), piece.data, piece.data + piece.length);
    }
    const std::uint64_t number = ++numbers_;
    for (std::size_t at = 0; at < bytes.size(); at += kPartBytes) {
      const std::size_t length = std::min(kPartBytes, bytes.size() - at);
      const Head head{Kind::kData, number, to.key, offset + at, at + length == bytes.size()};
      STDCHK_TRY(send_part(head, ByteSpan(bytes).subspan(at, length)));
    }
    operation.started();
    waiting_.emplace(number, &operation);
    return {};
  }
  Status read(std::span<const transport::LocalPiece> pieces, const transport::RemoteKey& from,
              std::uint64_t offset, transport::Operation& operation) override {
    return inner_->read(pieces, from, offset, operation);
  }
  bool fence() override { return inner_->fence(); }

  void on_connected(Link&) override { handler_->on_connected(*this); }
  void on_message(Link&, ByteSpan message) override {
    Head head;
    std::memcpy(&head, message.data(), sizeof(head));
    const ByteSpan body = message.subspan(sizeof(head));
    if (head.kind == Kind::kUser) return handler_->on_message(*this, body);
    if (head.kind == Kind::kDone) {
      const auto found = waiting_.extract(head.number);
      if (!found.empty()) found.mapped()->finish({});
      return;
    }
    // Breaks the claim one_sided: the target's own code copies.
    const MutableByteSpan memory = regions_.at(head.key);
    std::memcpy(memory.data() + head.offset, body.data(), body.size());
    if (head.last != 0) (void)send_part({Kind::kDone, head.number}, {});
  }
  void on_closed(Link&, Error why) override {
    finish_all(Code::kPeerLost);
    handler_->on_closed(*this, why);
  }

 private:
  Status send_part(const Head& head, ByteSpan body) {
    std::vector<std::byte> message(sizeof(head) + body.size());
    std::memcpy(message.data(), &head, sizeof(head));
    if (!body.empty()) std::memcpy(message.data() + sizeof(head), body.data(), body.size());
    return inner_->send(message);
  }
  void finish_all(Code code) {
    while (!waiting_.empty()) {
      const auto node = waiting_.extract(waiting_.begin());
      node.mapped()->finish(fail(code, "cheat"));
    }
  }

  Regions& regions_;
  LinkHandler* handler_;
  std::unique_ptr<Link> inner_;
  std::map<std::uint64_t, transport::Operation*> waiting_;
  std::uint64_t numbers_ = 0;
};

/// A CheatRegion tells the target's code where a key's memory is.
class CheatRegion final : public transport::MemoryRegion {
 public:
  CheatRegion(Regions& regions, std::unique_ptr<MemoryRegion> inner)
      : regions_(regions), inner_(std::move(inner)) {
    regions_.emplace(inner_->remote_key().key, inner_->bytes());
  }
  ~CheatRegion() override { regions_.erase(inner_->remote_key().key); }
  CheatRegion(const CheatRegion&) = delete;
  CheatRegion& operator=(const CheatRegion&) = delete;
  MutableByteSpan bytes() const override { return inner_->bytes(); }
  transport::RemoteKey remote_key() const override { return inner_->remote_key(); }

 private:
  Regions& regions_;
  std::unique_ptr<MemoryRegion> inner_;
};

class CheatEndpoint final : public transport::Endpoint, public transport::AcceptHandler {
 public:
  CheatEndpoint(std::unique_ptr<Endpoint> inner, bool target_must_progress)
      : inner_(std::move(inner)), capabilities_(inner_->capabilities()) {
    capabilities_.name = "cheat";
    capabilities_.target_must_progress = target_must_progress;
    capabilities_.message_bytes_max = kPartBytes;
  }
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  std::string address() const override { return inner_->address(); }
  Status listen(AcceptHandler& handler) override {
    handler_ = &handler;
    return inner_->listen(*this);
  }
  Result<std::unique_ptr<transport::MemoryRegion>> register_memory(
      MutableByteSpan memory) override {
    STDCHK_ASSIGN(auto inner, inner_->register_memory(memory));
    return std::make_unique<CheatRegion>(regions_, std::move(inner));
  }
  bool poll() override { return inner_->poll(); }
  int fd() const override { return inner_->fd(); }
  bool may_sleep() override { return inner_->may_sleep(); }
  Duration sleep_max() const override { return inner_->sleep_max(); }

  void on_accept(std::unique_ptr<Link> inner) override {
    auto link = std::make_unique<CheatLink>(regions_, nullptr);
    inner->set_handler(*link);
    link->set_inner(std::move(inner));
    handler_->on_accept(std::move(link));
  }

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const transport::secure::Ticket* ticket) override {
    auto link = std::make_unique<CheatLink>(regions_, &handler);
    STDCHK_ASSIGN(auto inner, inner_->connect(address, *link, deadline, ticket));
    link->set_inner(std::move(inner));
    return link;
  }
  std::unique_ptr<Endpoint> inner_;
  transport::Capabilities capabilities_;
  Regions regions_;
  AcceptHandler* handler_ = nullptr;
};

}  // namespace

std::unique_ptr<transport::Endpoint> make_cheat(std::unique_ptr<transport::Endpoint> inner,
                                                bool target_must_progress) {
  return std::make_unique<CheatEndpoint>(std::move(inner), target_must_progress);
}

}  // namespace stdchk::conformance
