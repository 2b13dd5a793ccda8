#include "tools/cast/cast_offer.h"

#include "core/base/host_address.h"
#include "tests/support/catch.h"

namespace stdchk::tools {

TEST_CASE("the text of an offer is a file's name, and gives the offer back") {
  CastOffer offer;
  offer.sender = {0x0a090001, 40123};
  offer.root.bytes.fill(std::byte{0x12});
  offer.layout.bytes.fill(std::byte{0xab});
  offer.secret.bytes.fill(std::byte{0xff});
  const std::string text = to_text(offer);
  CHECK(text.size() <= 255);
  CHECK(text.find('/') == std::string::npos);
  CHECK(parse_cast_offer(text) == offer);
}

TEST_CASE("a text that is no offer is refused") {
  const std::string digest(64, 'a');
  const std::string good = "10.0.0.1:7_" + digest + "_" + digest + "_" + digest;
  REQUIRE(parse_cast_offer(good));
  for (const std::string& bad : {std::string(), std::string("10.0.0.1:7"), good + "_", good + "0",
                                 "10.0.0.1_" + digest + "_" + digest + "_" + digest,
                                 "10.0.0.1:7_" + digest.substr(1) + "_" + digest + "_" + digest,
                                 "host:7_" + digest + "_" + digest + "_" + digest}) {
    CHECK_FALSE(parse_cast_offer(bad));
  }
}

TEST_CASE("the manager's host is the first of its addresses, without transport and port") {
  CHECK(host_of_manager("tcp:10.0.0.1:7471") == "10.0.0.1");
  CHECK(host_of_manager("ofi:verbs:10.0.0.1:7471") == "10.0.0.1");
  CHECK(host_of_manager("tcp:10.0.0.1:7471,tcp:10.0.0.2:1") == "10.0.0.1");
  CHECK(host_of_manager("shm:name").empty());
  CHECK(host_of_manager("").empty());
}

TEST_CASE("a host reaches itself by its own address") {
  CHECK(own_address_to("127.0.0.1") == 0x7f000001U);
  CHECK(own_address_to(0x7f000001U) == 0x7f000001U);
  CHECK_FALSE(own_address_to(""));
}

}  // namespace stdchk::tools
