#include "fork/process/host_network.h"

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

HostNetwork some_network() {
  HostNetwork network;
  network.tunnel = 0xabcdef;
  network.base = 0x0a5a0300;
  network.own = 0x0a090002;
  network.has_gateway = true;
  network.parts = {2, 254};
  network.peers = {0x0a090001, 0x0a090003, 0x0a090004};
  return network;
}

/// The bytes of a network with another number in a field of its head.
std::string with_field(std::size_t field, std::uint32_t value) {
  std::string bytes = encode(some_network());
  bytes.replace(field * sizeof(value), sizeof(value), reinterpret_cast<const char*>(&value),
                sizeof(value));
  return bytes;
}

}  // namespace

TEST_CASE("a host gets the network that the parent's host has decided") {
  CHECK(decode_network(encode(some_network())) == some_network());
}

TEST_CASE("a host without a network has only the loopback") {
  CHECK(decode_network(encode(HostNetwork())) == HostNetwork());
  // Earlier builds send nothing.
  CHECK(decode_network("") == HostNetwork());
}

TEST_CASE("bytes that are no network are refused") {
  const std::string good = encode(some_network());
  CHECK_FALSE(decode_network(std::string_view(good).substr(1)));
  CHECK_FALSE(decode_network(std::string_view(good).substr(0, good.size() - 1)));
  CHECK_FALSE(decode_network(good + "x"));
  CHECK_FALSE(decode_network(std::string_view(good).substr(0, 4)));
  CHECK_FALSE(decode_network(with_field(0, 1U << 24U)));  // the number of a VXLAN has 24 bits
  CHECK_FALSE(decode_network(with_field(1, 0x0a5a0301)));
  CHECK_FALSE(decode_network(with_field(4, 0xffffffff)));
  CHECK_FALSE(decode_network(with_field(5, 0xffffffff)));
  HostNetwork network = some_network();
  for (const std::uint32_t part : {0U, 1U, 255U, 258U}) {
    network.parts = {part};
    CHECK_FALSE(decode_network(encode(network)));
  }
}

}  // namespace stdchk::fork
