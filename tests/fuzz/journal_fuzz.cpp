// Feeds arbitrary bytes to the journal's decoders, as one record and as a metadata log. A log of
// the old format without checksums avoids their check. Accepted input must be encodable, and must
// decode to an equal value. A log with a flipped bit must be refused.

#include <cstdint>

#include "core/base/assert.h"
#include "manager/journal/journal_codec.h"
#include "manager/journal/metadata_log.h"

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
    const LogKeys keys(Secret{});
    std::string again;
    LogSnapshot snapshot(keys, Epoch{1}, 0, data[0], again);
    const std::size_t half = log->commands.size() / 2;
    for (std::size_t i = 0; i < log->commands.size(); ++i) {
      if (i == half) snapshot.finish(again);
      const Command& command = log->commands[i];
      const Status appended = i < half
                                  ? snapshot.append(command, again)
                                  : append_record(keys, Epoch{1}, i - half + 1, command, again);
      STDCHK_ASSERT(appended.has_value());
    }
    if (log->commands.empty()) snapshot.finish(again);
    std::string joined;
    for (const std::string& piece : cut_log(again)) joined += piece;
    const auto repeated = decode_log(joined, &keys);
    STDCHK_ASSERT(repeated.has_value() && repeated->commands == log->commands);
    const std::size_t wrong = (data[0] * std::size_t{256} + data[size / 2]) % joined.size();
    joined[wrong] = static_cast<char>(joined[wrong] ^ 1 << size % 8);
    STDCHK_ASSERT(!decode_log(joined, &keys).has_value());
  }
  return 0;
}
