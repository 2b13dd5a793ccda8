// Feeds arbitrary bytes to the readers of /proc and of control groups; the first byte chooses the
// reader. A number that was read must occur in the text. A program's name must not hide its state.

#include <string>

#include "benefactor/memory/kernel_text.h"
#include "core/base/assert.h"
#include "fuse/caller.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"

using namespace stdchk;

namespace {

void check_numbers(const std::string& text) {
  const std::string path = fuzz::folder().write("numbers", text);
  for (const auto& number : {benefactor::keyed_number(path, "MemAvailable:"),
                             benefactor::whole_file_number(path), benefactor::stalled_us(path)}) {
    STDCHK_ASSERT(!number || text.find(std::to_string(*number)) != std::string::npos);
  }
}

/// The reader sees whether a program was killed, regardless of its name.
void check_caller(const std::string& text) {
  using mount::CallerState;
  (void)parse_process_state(text);
  for (const bool killed : {false, true}) {
    std::string line = "12 (" + text + ")";
    for (int field = 3; field <= 52; ++field) {
      line += field == 9 ? " 4" : field == 52 && killed ? " 9" : " 0";
    }
    const CallerState wanted = killed ? CallerState::kKilled : CallerState::kRunning;
    STDCHK_ASSERT(mount::state_of_caller(parse_process_state(line)) == wanted);
    STDCHK_ASSERT(mount::state_of_caller(parse_process_state(line + "\n")) == wanted);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using Check = void (*)(const std::string&);
  static constexpr Check kChecks[] = {check_numbers, check_caller};
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const Check check = kChecks[choices.below(std::size(kChecks))];
  check(fuzz::text_of(choices.rest()));
  return 0;
}
