// Feeds arbitrary bytes to both ends of a handshake, as they are and as changes of a member's
// messages. Only the unchanged messages may complete it.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/assert.h"
#include "transport/secure/handshake.h"

using namespace stdchk;
using namespace stdchk::transport::secure;
using Message = std::vector<std::byte>;

namespace {

/// Applies bytes to a message, and shortens or lengthens it.
class Changes {
 public:
  explicit Changes(ByteSpan left) : left_(left) {}
  Message apply(Message message) {
    for (std::byte& each : message) each ^= next();
    const auto longer = std::to_integer<int>(next());
    if (longer >= 128)
      message.resize(message.size() -
                     std::min<std::size_t>(message.size(), static_cast<std::size_t>(longer - 127)));
    for (int i = 0; i < longer && longer < 128; ++i) message.push_back(next());
    changed_ |= longer != 0;
    return message;
  }
  bool changed() const { return changed_; }

 private:
  std::byte next() {
    if (left_.empty()) return {};
    const std::byte one = left_.front();
    left_ = left_.subspan(1);
    changed_ |= one != std::byte{};
    return one;
  }
  ByteSpan left_;
  bool changed_ = false;
};

const Keyring& manager() {
  static const Keyring keyring = Keyring::of_root({}, kAnyManager);
  return keyring;
}
const Credential& credential() {
  static const Credential own =
      Keyring::of_member(manager().key_of({Role::kClient, {}})).to_manager();
  return own;
}
/// Fixed randomness, so that a failing input can be repeated.
Handshake::Fresh fresh(int seed) {
  Handshake::Fresh fresh;
  fresh.key.bytes.fill(static_cast<std::byte>(seed));
  return fresh;
}

void talk(ByteSpan bytes) {
  Handshake connecting = Handshake::connecting(credential(), fresh(1));
  Handshake accepting = Handshake::accepting(manager(), fresh(2));
  Changes changes(bytes);
  const auto first = accepting.take(changes.apply(connecting.hello()));
  if (!first.status) return STDCHK_ASSERT(changes.changed());
  const auto second = connecting.take(changes.apply(first.reply));
  if (!second.status) return STDCHK_ASSERT(changes.changed());
  const auto third = accepting.take(changes.apply(second.reply));
  STDCHK_ASSERT(third.done == !changes.changed());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  Handshake accepting = Handshake::accepting(manager(), fresh(2));
  STDCHK_ASSERT(!accepting.take(bytes).done);
  Handshake connecting = Handshake::connecting(credential(), fresh(1));
  (void)connecting.hello();
  STDCHK_ASSERT(!connecting.take(bytes).done);
  talk(bytes);
  return 0;
}
