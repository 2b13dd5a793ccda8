#include <functional>
#include <memory>

#include "core/base/back_off.h"
#include "core/base/lifetime.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace std::chrono_literals;

TEST_CASE("a watch expires when its object goes, when the lifetime ends, and when it is renewed") {
  auto object = std::make_unique<Lifetime>();
  const Lifetime::Watch first = object->watch();
  CHECK_FALSE(first.expired());
  object->renew();
  const Lifetime::Watch second = object->watch();
  CHECK(first.expired());
  CHECK_FALSE(second.expired());
  object->end();
  CHECK(second.expired());
  CHECK(object->watch().expired());
  object->renew();
  const Lifetime::Watch third = object->watch();
  CHECK_FALSE(third.expired());
  object.reset();
  CHECK(third.expired());
}

TEST_CASE("a back-off doubles up to its longest wait, and begins anew after a success") {
  BackOff back_off(50ms, 150ms);
  CHECK_FALSE(back_off.is_failing());
  CHECK(back_off.next() == 50ms);
  CHECK(back_off.is_failing());
  CHECK(back_off.next() == 100ms);
  CHECK(back_off.next() == 150ms);
  CHECK(back_off.next() == 150ms);
  back_off.reset();
  CHECK(back_off.wait() == 0ms);
  CHECK(back_off.retry_soon() == 50ms);
  CHECK(back_off.is_failing());
  CHECK(back_off.next() == 100ms);
  CHECK(back_off.retry_soon() == 50ms);
  CHECK(back_off.wait() == 100ms);
}
