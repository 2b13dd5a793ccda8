#include "fork/pager/regions.h"

#include "tests/support/catch.h"

namespace stdchk::pager {
namespace {

Regions one(std::uint64_t address, std::uint64_t length, std::uint64_t offset) {
  Regions regions;
  regions.count = 1;
  regions.all[0] = {address, length, offset};
  return regions;
}

TEST_CASE("a mapping that is moved whole shows the image at its new place only") {
  Regions regions = one(0x10000, 0x8000, 0x4000);
  CHECK(regions.move(0x10000, 0x90000, 0x8000));
  CHECK(regions.count == 1);
  CHECK(regions.offset_of(0x93000) == 0x7000);
  CHECK_FALSE(regions.offset_of(0x13000));
}

TEST_CASE("a part that is moved away and back is one region again") {
  Regions regions = one(0x10000, 0x8000, 0);
  CHECK(regions.move(0x12000, 0x90000, 0x2000));
  CHECK(regions.count == 3);
  CHECK(regions.offset_of(0x91000) == 0x3000);
  CHECK(regions.offset_of(0x14000) == 0x4000);
  CHECK_FALSE(regions.offset_of(0x12000));
  CHECK(regions.move(0x90000, 0x12000, 0x2000));
  CHECK(regions.count == 1);
  CHECK(regions.all[0] == Region{0x10000, 0x8000, 0});
}

TEST_CASE("a move of several regions moves all of them") {
  // The kernel joins mappings that continue each other in memory and in the file.
  Regions regions = one(0x10000, 0x8000, 0);
  CHECK(regions.move(0x14000, 0x90000, 0x4000));
  CHECK(regions.move(0x90000, 0x14000, 0x4000));
  CHECK(regions.move(0x10000, 0x50000, 0x8000));
  CHECK(regions.offset_of(0x57000) == 0x7000);
  CHECK(regions.count == 1);
}

TEST_CASE("a move onto another part of the mapping replaces that part") {
  Regions regions = one(0x10000, 0x8000, 0);
  CHECK(regions.move(0x10000, 0x14000, 0x2000));
  CHECK(regions.offset_of(0x14000) == 0);
  CHECK(regions.offset_of(0x12000) == 0x2000);
  CHECK(regions.offset_of(0x16000) == 0x6000);
  CHECK_FALSE(regions.offset_of(0x10000));
}

TEST_CASE("more parts than there is room for are reported") {
  Regions regions = one(0x100000, 0x100000, 0);
  bool complete = true;
  for (std::uint64_t i = 0; i < Regions::kRegionsMax; ++i) {
    complete = regions.move(0x100000 + i * 0x4000, 0x900000 + i * 0x10000, 0x1000) && complete;
  }
  CHECK_FALSE(complete);
}

}  // namespace
}  // namespace stdchk::pager
