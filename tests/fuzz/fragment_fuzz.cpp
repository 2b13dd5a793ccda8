// Feeds arbitrary bytes to the verbs transport's decoders below messages: greetings, region tables
// and fragments. Assembled messages must equal their fragments' content.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/assert.h"
#include "tests/fuzz/choices.h"
#include "transport/verbs/fragment.h"

using namespace stdchk;
using namespace stdchk::transport::verbs;

namespace {

constexpr std::size_t kMessageBytesMax = 600;

void check_greeting(ByteSpan bytes) {
  const auto greeting = greeting_of(bytes);
  if (!greeting) return;
  STDCHK_ASSERT(greeting_of(std::as_bytes(std::span(&*greeting, 1))) == greeting);
}

void check_table(ByteSpan bytes) {
  const auto table = decode_region_table(bytes);
  if (!table) return;
  const std::vector<std::byte> again = encode(*table);
  STDCHK_ASSERT(std::ranges::equal(again, bytes));
  STDCHK_ASSERT(table->part_bytes > 0 && !table->keys.empty());
}

/// Adds fragments in order until one is refused; assembles the accepted fragments a second time.
void check_fragments(ByteSpan bytes) {
  fuzz::Choices choices(bytes);
  Assembler assembler(kMessageBytesMax);
  std::vector<std::byte> expected;
  while (!choices.empty()) {
    FragmentHeader header;
    header.message_bytes = static_cast<std::uint32_t>(choices.byte() * 4);
    if (header.message_bytes == 4 * 255) {
      header.message_bytes = static_cast<std::uint32_t>(choices.number());
    }
    const ByteSpan content = choices.bytes(choices.byte());
    const auto added = assembler.add(header, content);
    if (!added) return;
    expected.insert(expected.end(), content.begin(), content.end());
    STDCHK_ASSERT(expected.size() <= kMessageBytesMax);
    if (!added->has_value()) continue;
    STDCHK_ASSERT((*added)->size() == header.message_bytes);
    STDCHK_ASSERT(std::ranges::equal(**added, expected));
    expected.clear();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  if (bytes.empty()) return 0;
  const ByteSpan rest = bytes.subspan(1);
  switch (data[0] % 3) {
    case 0:
      check_greeting(rest);
      break;
    case 1:
      check_table(rest);
      break;
    default:
      check_fragments(rest);
  }
  return 0;
}
