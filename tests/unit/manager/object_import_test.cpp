#include "manager/drain/object_import.h"

#include <string>
#include <variant>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/memory_object_store.h"

namespace stdchk::manager {
namespace {

/// A store whose listing says that each object has `said_bytes`.
class BoastingStore final : public MemoryObjectStore {
 public:
  std::uint64_t said_bytes = 0;
  Outcome<Page> list(const std::string& prefix, const std::string& from, Time deadline) override {
    auto page = MemoryObjectStore::list(prefix, from, deadline);
    for (Listed& object : page->objects) object.size_bytes = said_bytes;
    return page;
  }
};

std::vector<std::string> names_in(ObjectStore& store) {
  std::vector<std::string> out;
  REQUIRE(import_objects(store, "p", Time::max(), [&](const Command& command) {
    if (const auto* file = std::get_if<RestoreFile>(&command)) out.push_back(file->name);
  }));
  return out;
}

}  // namespace

TEST_CASE("an object of a size that no object has is not shown") {
  BoastingStore store;
  REQUIRE(store.put("p/x", {}, {}, {}, Time::max()));
  store.said_bytes = 100;
  CHECK(names_in(store) == std::vector<std::string>{"x"});
  // A map of all its chunks would fill the manager's memory.
  store.said_bytes = std::uint64_t{1} << 63;
  CHECK(names_in(store).empty());
}

}  // namespace stdchk::manager
