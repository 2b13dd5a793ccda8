#include "core/base/units.h"
#include "core/base/utf8.h"
#include "core/policy/image_name.h"
#include "core/runtime/manager_addresses.h"
#include "tests/support/catch.h"

using namespace stdchk;

TEST_CASE("sizes are whole or decimal numbers with a binary unit") {
  CHECK(parse_bytes("0").value() == 0);
  CHECK(parse_bytes("1048576").value() == 1048576);
  CHECK(parse_bytes("64k").value() == 65536);
  CHECK(parse_bytes("512M").value() == 512ULL << 20);
  CHECK(parse_bytes("2GiB").value() == 2ULL << 30);
  CHECK(parse_bytes("2gb").value() == 2ULL << 30);
  CHECK(parse_bytes("3.5TB").value() == 7ULL << 39);
  CHECK(parse_bytes("1P").value() == 1ULL << 50);
  CHECK(parse_bytes("12B").value() == 12);
  CHECK(parse_bytes("0.0009765625k").value() == 1);
  CHECK(parse_bytes("1.50000000000000000000M").value() == 1536 << 10);
  CHECK(parse_bytes("9223372036854775807").value() == 9223372036854775807ULL);
  CHECK(parse_rate("200M/s").value() == 200ULL << 20);
  CHECK(parse_rate("200M").value() == 200ULL << 20);
}

TEST_CASE("what is not exactly a size is an error") {
  for (const char* text : {"",
                           " ",
                           "G",
                           "-1",
                           "+1",
                           "1 G",
                           "1G ",
                           "3.5XB",
                           "1.5",
                           "0.1k",
                           "1.",
                           ".5G",
                           "1e3",
                           "1Gi",
                           "1GiBB",
                           "1KK",
                           "0x10",
                           "1,5G",
                           "9223372036854775808",
                           "8192P",
                           "99999999999999999999",
                           "1.000000000000000000001G",
                           "1GiB/s",
                           "1BB",
                           "1BiB"}) {
    INFO(text);
    const auto parsed = parse_bytes(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().code == Code::kInvalidArgument);
  }
  CHECK_FALSE(parse_rate("1M/m").has_value());
  CHECK_FALSE(parse_rate("/s").has_value());
}

TEST_CASE("sizes are written with at most four digits") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes((1 << 20) - 1) == "1.0 MiB");
  CHECK(format_bytes(1000ULL << 20) == "1000 MiB");
  CHECK(format_bytes(512ULL << 30) == "512.0 GiB");
  CHECK(format_bytes(~0ULL) == "16.0 EiB");
}

TEST_CASE("image names have an application, a node and a timestep") {
  CHECK(parse_image_name("heat.N3.T120") == ImageName{"heat", 3, 120});
  CHECK(parse_image_name("my.app.v2.N0.T007") == ImageName{"my.app.v2", 0, 7});
  CHECK(parse_image_name("a.N18446744073709551615.T0") == ImageName{"a", ~0ULL, 0});
  for (const char* name :
       {"", "heat", "heat.N3", "heat.T120", "heat.T120.N3", ".N3.T120", "heat.N3.T120.tmp",
        "heat.N.T1", "heat.N1.T", "heat.N-1.T1", "heat.N+1.T1", "heat.n1.t1", "heat.N1x.T1",
        "heat.N1.T18446744073709551616", "heat.N 1.T1", "heatN1.T1", "dir/heat.N1.T1"}) {
    INFO(name);
    CHECK_FALSE(parse_image_name(name).has_value());
  }
}

TEST_CASE("images, the link of the newest set and names with a star belong to sets") {
  for (const char* name : {"heat.N3.T120", "latest", "heat.*.T120", "*", "a*b"}) {
    INFO(name);
    CHECK(is_name_of_sets(name));
  }
  for (const char* name : {"", "heat", "heat.T120", "Latest", "latest.txt", ".stdchk-a"}) {
    INFO(name);
    CHECK_FALSE(is_name_of_sets(name));
  }
}

TEST_CASE("a list is split where its separators are, and has no empty parts") {
  CHECK(split("", ',').empty());
  CHECK(split("a", ',') == std::vector<std::string>{"a"});
  CHECK(split("/a b:/c", ':') == std::vector<std::string>{"/a b", "/c"});
  CHECK(split(",a,,b,", ',') == std::vector<std::string>{"a", "b"});
}

TEST_CASE("managers are asked in turn, each round later than the one before") {
  using std::chrono::milliseconds;
  ManagerAddresses managers("one,two", milliseconds(250));
  CHECK_FALSE(managers.failing());
  // After a lost link, the same manager is tried again within 50 ms.
  CHECK(managers.delay_before_retry() == milliseconds(50));
  CHECK(managers.current() == "one");
  CHECK(managers.failing());
  for (const int wait : {100, 200, 250, 250}) {
    CHECK(managers.next() == milliseconds(50));
    CHECK(managers.current() == "two");
    CHECK(managers.next() == milliseconds(wait));
    CHECK(managers.current() == "one");
  }
  managers.answered();
  CHECK_FALSE(managers.failing());
  ManagerAddresses alone("one", milliseconds(250));
  CHECK(alone.next() == milliseconds(50));
  CHECK(alone.next() == milliseconds(100));
  CHECK(ManagerAddresses("", milliseconds(250)).current().empty());
}

TEST_CASE("A text that is cut ends with a whole character") {
  const auto cut = [](std::string text, std::size_t bytes_max) {
    cut_text(text, bytes_max);
    return text;
  };
  CHECK(cut("rank \xc3\xa9", 7) == "rank \xc3\xa9");
  CHECK(cut("rank \xc3\xa9", 6) == "rank ");
  CHECK(cut("rank \xc3\xa9", 5) == "rank ");
  CHECK(cut("\xe2\x82\xac", 2).empty());
  CHECK(cut("", 0).empty());
}
