// Applies arbitrary commands to a State, as from a corrupt journal: made of the input's bytes, or
// decoded from them as a metadata log. The State executes or refuses each command. A snapshot must
// restore an equal State.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/assert.h"
#include "manager/journal/journal_codec.h"
#include "manager/journal/metadata_log.h"
#include "manager/state/state.h"
#include "tests/fuzz/commands.h"

using namespace stdchk;
using namespace stdchk::manager;

namespace {

/// The command as the journal returns it; empty if the journal cannot hold it.
std::optional<Command> journalled(const Command& command) {
  std::vector<std::byte> bytes;
  if (!encode_command(command, bytes)) return {};
  auto read = decode_command(bytes);
  if (!read) return {};
  return std::move(*read);
}

/// Leaves out stripes, because they have no order.
std::vector<Command> snapshot_of(const State& state) {
  std::vector<Command> out;
  state.snapshot([&](Command command) { out.push_back(std::move(command)); });
  std::erase_if(out, [](const Command& each) { return std::holds_alternative<MakeStripes>(each); });
  return out;
}

void check(const State& state) {
  State again;
  state.snapshot([&](const Command& command) {
    const auto read = journalled(command);
    STDCHK_ASSERT(read.has_value() && again.apply(*read).has_value());
  });
  STDCHK_ASSERT(snapshot_of(again) == snapshot_of(state));
  STDCHK_ASSERT(again.commits().logical_bytes() == state.commits().logical_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  State state;
  if (choices.flag()) {
    const auto log = decode_log(fuzz::text_of(choices.rest()));
    if (!log) return 0;
    for (const Command& command : log->commands) (void)state.apply(command);
  } else {
    while (!choices.empty()) {
      const auto command = journalled(fuzz::make_command(choices));
      if (command) (void)state.apply(*command);
    }
  }
  check(state);
  return 0;
}
