// Feeds any bytes to the decoders of the journal: as one record, and as a metadata log. What they
// let in must be encodable again, and equal when decoded once more.

#include <cstdint>

#include "core/assert.h"
#include "manager/journal_codec.h"
#include "manager/metadata_log.h"

using namespace stdchk;
using namespace stdchk::manager;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  if (const auto command = decode_command(bytes); command.has_value()) {
    std::vector<std::byte> again;
    STDCHK_ASSERT(encode_command(*command, again).has_value());
    const auto repeated = decode_command(again);
    STDCHK_ASSERT(repeated.has_value() && *repeated == *command);
  }
  const auto log = decode_log({reinterpret_cast<const char*>(data), size});
  if (log.has_value()) {
    std::string again;
    for (const Command& command : *log) STDCHK_ASSERT(append_record(command, again).has_value());
    std::string joined;
    for (const std::string& piece : cut_log(again)) joined += piece;
    const auto repeated = decode_log(joined);
    STDCHK_ASSERT(repeated.has_value() && *repeated == *log);
  }
  return 0;
}
