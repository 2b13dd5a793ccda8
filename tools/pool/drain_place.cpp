#include "tools/pool/drain_place.h"

#include <chrono>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/objects/object_place.h"
#include "core/objects/s3_store.h"
#include "tools/base/pool_record.h"

namespace stdchk::tools {
namespace {

constexpr Duration kPatience = std::chrono::seconds(15);

}  // namespace

std::string drain_place(const DrainTarget& drain) {
  if (drain.directory.empty()) return {};
  if (!is_object_store(drain.directory)) return absolute_path(drain.directory);
  const auto place = ObjectPlace::with_endpoint(drain.directory, drain.endpoint);
  return place ? place->text() : drain.directory;
}

Outcome<void> check_object_store(const DrainTarget& drain) {
  const auto parsed = ObjectPlace::with_endpoint(drain.directory, drain.endpoint);
  if (!parsed) return problem("--drain: {}", parsed.error().text);
  const SystemClock clock;
  const auto store = open_object_store(*parsed, clock);
  if (!store) return problem("--drain {}: {}", parsed->name(), store.error().text);
  const auto page =
      (*store)->list(parsed->key_of(msg::kTemporaryFolder), "", clock.now() + kPatience);
  if (!page) return problem("--drain {}: {}", parsed->name(), page.error().text);
  return {};
}

}  // namespace stdchk::tools
