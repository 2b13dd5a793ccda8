#include "metrics/exposition.h"

#include <cmath>
#include <limits>

#include "metrics/listen_address.h"
#include "metrics/pool_figures.h"
#include "metrics/process.h"
#include "tests/support/catch.h"

namespace stdchk::metrics {

TEST_CASE("a metric has its head once, in front of all its samples") {
  Exposition out;
  out.gauge("stdchk_a", "First.", 1.5, {{"x", "1"}});
  out.counter("stdchk_b_total", "Second.", std::uint64_t{7});
  out.gauge("stdchk_a", "First.", 2.0, {{"x", "2"}});
  CHECK(out.text() ==
        "# HELP stdchk_a First.\n"
        "# TYPE stdchk_a gauge\n"
        "stdchk_a{x=\"1\"} 1.5\n"
        "stdchk_a{x=\"2\"} 2\n"
        "# HELP stdchk_b_total Second.\n"
        "# TYPE stdchk_b_total counter\n"
        "stdchk_b_total 7\n");
}

TEST_CASE("labels are escaped, and those of all samples come first") {
  Exposition out(Labels{{"pool", "/mnt/\"p\\\n"}});
  out.gauge("stdchk_a", "Back\\slash\nand \"line\".", 0.0, {{"x", "1"}});
  CHECK(out.text() ==
        "# HELP stdchk_a Back\\\\slash\\nand \"line\".\n"
        "# TYPE stdchk_a gauge\n"
        "stdchk_a{pool=\"/mnt/\\\"p\\\\\\n\",x=\"1\"} 0\n");
}

TEST_CASE("numbers are exact, and those without digits have their names") {
  Exposition out;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {9007199254740992.0, 0.1, infinity, -infinity, std::nan("")}) {
    out.gauge("stdchk_a", "A.", value);
  }
  CHECK(out.text() ==
        "# HELP stdchk_a A.\n"
        "# TYPE stdchk_a gauge\n"
        "stdchk_a 9007199254740992\n"
        "stdchk_a 0.1\n"
        "stdchk_a +Inf\n"
        "stdchk_a -Inf\n"
        "stdchk_a NaN\n");
}

TEST_CASE("the buckets of a histogram hold all below their bounds") {
  Histogram times(kTimeBounds);
  CHECK_FALSE(times.used());
  times.count(100'000);  // equal to the first bound
  times.count(100'001);
  times.count(5'000'000'000);
  times.count(200'000'000'000);
  CHECK(times.used());
  Exposition out;
  out.histogram("stdchk_seconds", "Times.", times.snapshot(1e9), {{"kind", "a"}});
  CHECK(out.text() ==
        "# HELP stdchk_seconds Times.\n"
        "# TYPE stdchk_seconds histogram\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"0.0001\"} 1\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"0.001\"} 2\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"0.01\"} 2\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"0.1\"} 2\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"1\"} 2\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"10\"} 3\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"100\"} 3\n"
        "stdchk_seconds_bucket{kind=\"a\",le=\"+Inf\"} 4\n"
        "stdchk_seconds_sum{kind=\"a\"} 205.000200001\n"
        "stdchk_seconds_count{kind=\"a\"} 4\n");
}

TEST_CASE("a pool's benefactors are counted by state, also states that none has") {
  std::vector<msg::BenefactorInfo> benefactors(3);
  benefactors[0].id = BenefactorId{1};
  benefactors[0].host_name = "one";
  benefactors[1].id = BenefactorId{2};
  benefactors[1].state = msg::BenefactorState::kSilent;
  benefactors[2].id = BenefactorId{3};
  Exposition out;
  add_pool(out, {}, benefactors);
  const std::string text = out.text();
  CHECK(text.find("stdchk_benefactors{state=\"alive\"} 2\n") != std::string::npos);
  CHECK(text.find("stdchk_benefactors{state=\"silent\"} 1\n") != std::string::npos);
  CHECK(text.find("stdchk_benefactors{state=\"gone\"} 0\n") != std::string::npos);
  CHECK(text.find("stdchk_benefactor_up{benefactor=\"b1\",host=\"one\"} 1\n") != std::string::npos);
  CHECK(text.find("stdchk_benefactor_up{benefactor=\"b2\",host=\"\"} 0\n") != std::string::npos);
}

TEST_CASE("a process knows its own memory, time and descriptors") {
  Exposition out;
  add_process(out);
  const std::string text = out.text();
  for (const char* name : {"\nprocess_cpu_seconds_total ", "\nprocess_virtual_memory_bytes ",
                           "\nprocess_resident_memory_bytes ", "\nprocess_start_time_seconds ",
                           "\nprocess_open_fds ", "\nprocess_max_fds "}) {
    INFO(name);
    const auto at = text.find(name);
    REQUIRE(at != std::string::npos);
    CHECK(std::stod(text.substr(at + std::string(name).size())) > 0);
  }
}

TEST_CASE("where an endpoint listens, as people write it") {
  const auto text = [](const std::string& given) {
    const auto at = ListenAddress::parse(given);
    return at ? at->text() : at.error().text;
  };
  CHECK(text("9200") == "127.0.0.1:9200");
  CHECK(text("0.0.0.0:1") == "0.0.0.0:1");
  CHECK(text("node7:0") == "node7:0");
  CHECK(text("[::1]:65535") == "[::1]:65535");
  for (const char* wrong :
       {"", ":", ":9200", "a:", "a:b", "a:65536", "a:-1", "::1:9200", "a:1 ", "[]:1", "1.2.3.4"}) {
    INFO(wrong);
    CHECK(text(wrong).find("is not ADDRESS:PORT") != std::string::npos);
  }
  CHECK(ListenAddress{"127.0.0.1", 1}.is_loopback());
  CHECK(ListenAddress{"::1", 1}.is_loopback());
  CHECK_FALSE(ListenAddress{"0.0.0.0", 1}.is_loopback());
  CHECK(ListenAddress{"::", 1}.is_any());
}

}  // namespace stdchk::metrics
