#include "core/objects/object_store.h"

#include <fmt/core.h>

#include <cerrno>
#include <span>

namespace stdchk {

Outcome<std::string> get_text(ObjectStore& store, const std::string& key, std::uint64_t bytes_max,
                              Time deadline) {
  const auto found = store.find(key, deadline);
  if (!found) return problem(found.error());
  if (found->size_bytes > bytes_max) {
    return problem(Code::kMalformed, "objects.text", EFBIG,
                   fmt::format("{} has {} bytes, more than {}", key, found->size_bytes, bytes_max));
  }
  std::string text(found->size_bytes, '\0');
  if (text.empty()) return text;
  const auto bytes = std::as_writable_bytes(std::span(text.data(), text.size()));
  // The condition makes sure that the length is that of the bytes.
  if (const auto got = store.get(key, {0, bytes, found->etag}, deadline); !got) {
    return problem(got.error());
  }
  return text;
}

Outcome<void> each_object(ObjectStore& store, const std::string& prefix, Time deadline,
                          const std::function<bool(const ObjectStore::Listed&)>& visit) {
  return each_object(
      store, prefix, [deadline] { return deadline; }, visit);
}

Outcome<void> each_object(ObjectStore& store, const std::string& prefix,
                          const std::function<Time()>& deadline_of_page,
                          const std::function<bool(const ObjectStore::Listed&)>& visit) {
  std::string from;
  do {
    const auto page = store.list(prefix, from, deadline_of_page());
    if (!page) return problem(page.error());
    for (const auto& object : page->objects) {
      if (!visit(object)) return {};
    }
    from = page->next;
  } while (!from.empty());
  return {};
}

}  // namespace stdchk
