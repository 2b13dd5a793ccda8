#include "container/description/description.h"

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

BoxDescription some_box() {
  BoxDescription box;
  box.host_name = "job-r0";
  box.address = "10.9.0.2";
  box.root = "/";
  box.directory = "/home/a";
  box.user = 1000;
  box.group = 100;
  box.environment = {"A=b c", "D="};
  box.hosts = {"10.9.0.2 job-r0"};
  box.host_file = "10.9.0.2\n";
  return box;
}

TEST_CASE("limits are in a description when there are any") {
  BoxDescription box = some_box();
  box.limits = {.memory_bytes = 1U << 30, .cpu_percent = 150, .processes = 100};
  CHECK(text_of(box).find("\"cpu_percent\":150") != std::string::npos);
  CHECK(parse_box(text_of(box)) == box);
}

SetDescription some_set() {
  SetDescription set;
  set.job = "job";
  set.set = 7;
  set.created = "2026-01-31 12:00:00";
  set.program = {"mpiexec", "-n", "4", "./a b"};
  set.boxes = {{0, some_box()}, {3, some_box()}};
  set.asks = {{"12-34", {3, 1}}};
  set.commands = {{0, 1}, {3, 2}};
  set.image_bytes = {{0, 1U << 20}, {3, std::uint64_t{1} << 40}};
  set.output_bytes = 12;
  set.error_bytes = 3;
  return set;
}

TEST_CASE("descriptions that are written are read equally") {
  CHECK(parse_box(text_of(some_box())) == some_box());
  CHECK(parse_set(text_of(some_set())) == some_set());
  NetworkDescription network;
  network.number = 77;
  network.underlay = "10.0.0.1";
  network.peers = {"10.0.0.2"};
  network.folder = "/tmp/pool/job";
  network.application = "job";
  CHECK(parse_network(text_of(network)) == network);
  CHECK(text_of(network).find("lazy") == std::string::npos);
  network.lazy = true;
  CHECK(parse_network(text_of(network)) == network);
}

TEST_CASE("a description's bytes stay what they are: later versions must read them") {
  CHECK(text_of(some_box()) ==
        R"({"address":"10.9.0.2","directory":"/home/a","environment":["A=b c","D="],"group":100,)"
        R"("host_file":"10.9.0.2\n","host_name":"job-r0","hosts":["10.9.0.2 job-r0"],"root":"/",)"
        R"("user":1000,"version":1})");
}

TEST_CASE("texts that are no description are refused with the field's name") {
  const auto refused = [](BoxDescription box) {
    const auto read = parse_box(text_of(box));
    return read ? std::string() : read.error().text;
  };
  BoxDescription box = some_box();
  box.host_name = "a b; rm";
  CHECK(refused(box).find("host_name") != std::string::npos);
  box = some_box();
  box.address = "10.9.0.2/24";
  CHECK(refused(box).find("address") != std::string::npos);
  box = some_box();
  box.root = "relative";
  CHECK(refused(box).find("root") != std::string::npos);
  CHECK_FALSE(parse_box("").has_value());
  CHECK_FALSE(parse_box("[1,2]").has_value());
  CHECK_FALSE(parse_set("{\"version\":2}").has_value());
  CHECK_FALSE(parse_network("{\"version\":1,\"number\":\"a\"}").has_value());
}

TEST_CASE("A number of a description that its field cannot hold is refused, and not cut") {
  const std::string good = text_of(some_box());
  for (const char* const number : {"4294967296", "-1", "1.5", "1e300", "18446744073709551616"}) {
    std::string text = good;
    const std::string field = R"("user":)";
    const auto at = text.find(field) + field.size();
    text.replace(at, text.find_first_of(",}", at) - at, number);
    INFO(text);
    CHECK_FALSE(parse_box(text).has_value());
  }
}

TEST_CASE("members of a set have names that the pool knows, A.Ni.Tj") {
  CHECK(image_name("job-1", 3, 12) == "job-1.N4.T12");
  CHECK(description_name("job-1", 12) == "job-1.N0.T12");
  CHECK(set_of_name("job-1", "job-1.N0.T12") == 12);
  CHECK(set_of_name("job-1", "job-1.N0.T12.new") == 0);
  CHECK(set_of_name("job-1", "job-1.N4.T12") == 0);
  CHECK(set_of_name("job-1", "job-2.N0.T12") == 0);
}

}  // namespace
}  // namespace stdchk::container
