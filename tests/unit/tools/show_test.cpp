#include "tools/base/show.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using namespace stdchk::tools;

TEST_CASE("names that are not UTF-8 stay different in JSON") {
  const auto text = [](const std::string& name) { return to_text(nlohmann::json(name)); };
  CHECK(text("heat.N0") == "\"heat.N0\"");
  CHECK(text("z\xc3\xbcrich") == "\"z\xc3\xbcrich\"");
  CHECK(text("a\xff") == "\"a\\udcff\"");
  CHECK(text("a\xfe") == "\"a\\udcfe\"");
  CHECK(text("\xed\xa0\x80") == "\"\\udced\\udca0\\udc80\"");
  CHECK(text("\xc0\xaf") == "\"\\udcc0\\udcaf\"");
  CHECK(text("\xef\xb7\x90"
             "ff") == "\"\\udcef\\udcb7\\udc90ff\"");
  CHECK(to_text({{"\xff", {"\xfe", 1}}}) == "{\n  \"\\udcff\": [\n    \"\\udcfe\",\n    1\n  ]\n}");
}

TEST_CASE("a name with control characters is shown quoted") {
  CHECK(shown("plain name's") == "plain name's");
  CHECK(shown("\x1b[31mred") == "$'\\x1b[31mred'");
  CHECK(shown("it's\n") == "$'it\\'s\\x0a'");
  CHECK(shown("\xc2\x9bX") == "$'\\xc2\\x9bX'");
  CHECK(shown("z\xc3\xbcrich") == "z\xc3\xbcrich");
  // Some terminals read a byte that is not UTF-8 as a control character.
  CHECK(shown("a\x9b") == "$'a\\x9b'");
}

TEST_CASE("a message with control characters cannot change the terminal, and keeps its lines") {
  CHECK(shown_message("it's\nz\xc3\xbcrich") == "it's\nz\xc3\xbcrich");
  CHECK(shown_message("a\x1b[2J\x9b\xc2\x9b") == "a\\x1b[2J\\x9b\\xc2\\x9b");
}
