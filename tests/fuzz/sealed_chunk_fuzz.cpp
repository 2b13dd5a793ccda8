// Feeds arbitrary bytes to the code that opens sealed chunks: as a name with its stored bytes, and
// as changes to a sealed chunk. Only the unchanged chunk may open.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/assert.h"
#include "core/chunk/sealed_chunk.h"

using namespace stdchk;

namespace {

constexpr std::size_t kMarkBytes = 8;

/// Uses the first bytes as the chunk's name, the rest as its content.
bool open_as_it_is(const ChunkSealer& sealer, ByteSpan bytes) {
  ChunkName name;
  const std::size_t of_name = std::min(bytes.size(), name.bytes.size() - kMarkBytes);
  std::ranges::copy(bytes.first(of_name), name.bytes.begin());
  std::ranges::copy(std::as_bytes(std::span("sealed.C", kMarkBytes)),
                    name.bytes.end() - kMarkBytes);
  const ByteSpan rest = bytes.subspan(of_name);
  std::vector<std::byte> stored(rest.begin(), rest.end());
  return sealer.open(name, stored).has_value();
}

/// Changes a sealed chunk and its name by XOR with the bytes.
void change(const ChunkSealer& sealer, ByteSpan bytes) {
  std::vector<std::byte> plain(bytes.size() / 2, std::byte{7});
  std::vector<std::byte> stored = plain;
  const MutableByteSpan all(stored);
  ChunkName content_name;
  content_name.bytes.fill(std::byte{1});
  ChunkName name =
      sealer.seal({all.first(plain.size() / 2), all.subspan(plain.size() / 2)}, content_name);
  const ChunkName sealed_name = name;
  const std::vector<std::byte> sealed = stored;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::byte& at = i < stored.size() ? stored[i] : name.bytes[i % (32 - kMarkBytes)];
    at ^= bytes[i];
  }
  const bool changed = stored != sealed || name != sealed_name;
  const bool opened = sealer.open(name, stored).has_value();
  STDCHK_ASSERT(opened == !changed);
  STDCHK_ASSERT(!opened || stored == plain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const ChunkSealer sealer(Secret{});
  STDCHK_ASSERT(!open_as_it_is(sealer, bytes));
  change(sealer, bytes);
  return 0;
}
