// Sets and policy of the C interface.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "client/api/folder_rules.h"
#include "client/library/errors.h"
#include "client/library/objects.h"
#include "client/library/paths.h"
#include "core/policy/image_name.h"
#include "core/policy/image_placement.h"
#include "core/policy/policy.h"
#include "core/policy/set_rules.h"

using namespace stdchk::client::library;
using stdchk::Code;
using stdchk::Outcome;
using stdchk::Result;

namespace {

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  const std::size_t count = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

/// Returns the name of the set as users write it.
std::string name_of(const stdchk::msg::ListSets::Entry& entry) {
  const bool is_named = entry.timestep == stdchk::kNamedTimestep;
  return is_named ? entry.application : stdchk::set_name(entry.application, entry.timestep);
}

struct stdchk_set shown(const stdchk::msg::ListSets::Entry& entry, std::uint64_t wanted) {
  struct stdchk_set out {};
  copy_text(out.name, name_of(entry));
  if (entry.timestep != stdchk::kNamedTimestep) {
    copy_text(out.application, entry.application);
    out.timestep = entry.timestep;
  }
  out.images = entry.images;
  // A set that was complete keeps its number (docs/decisions/0028).
  out.images_wanted = entry.complete ? entry.images : wanted;
  out.drained = entry.drained;
  out.size_bytes = entry.bytes;
  out.newest_ns = entry.newest_ns;
  if (entry.complete) out.flags |= STDCHK_SET_COMPLETE;
  if (entry.pinned) out.flags |= STDCHK_SET_PINNED;
  if (entry.latest) out.flags |= STDCHK_SET_LATEST;
  return out;
}

Result<std::vector<struct stdchk_set>> list(stdchk_pool* pool, const char* folder) {
  STDCHK_ASSIGN(const auto found, find_folder(*pool->filesystem, folder));
  STDCHK_ASSIGN(const auto reply, pool->filesystem->sets(found.id));
  std::vector<struct stdchk_set> sets;
  for (const auto& entry : reply.sets) sets.push_back(shown(entry, reply.images_wanted));
  return sets;
}

/// Returns the value of a rule in force. Rules of the folders above `path` count, too.
Result<std::string> rule_in_force(stdchk::client::Filesystem& filesystem, std::string path,
                                  const stdchk::SetRule& rule) {
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    STDCHK_ASSIGN(const auto folder, find(filesystem, path, LastLink::kFollow));
    STDCHK_ASSIGN(const auto rules, stdchk::client::own_rules(filesystem, folder.id));
    const auto found = rules.find(rule.key);
    if (found != rules.end()) return found->second.value;
    if (path.empty()) return std::string(rule.otherwise);
    const std::size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

/// Returns the value of a key of the policy as people write it.
Result<std::string> policy_in_force(stdchk::client::Filesystem& filesystem, const char* path,
                                    stdchk::PolicyKey key) {
  STDCHK_ASSIGN(const auto found, find(filesystem, path, LastLink::kFollow));
  STDCHK_ASSIGN(const auto policy, filesystem.policy(found.id));
  if (key == stdchk::PolicyKey::kChunking && !policy.effective.chunking()) return "inherit";
  return stdchk::format_value({key, policy.effective.get(key)});
}

Outcome<std::string> setting_in_force(stdchk_pool* pool, const char* path, const char* key) {
  const auto explained = [](const Result<std::string>& value) -> Outcome<std::string> {
    if (!value) return stdchk::problem(value.error());
    return *value;
  };
  for (const stdchk::SetRule& rule : stdchk::set_rules()) {
    if (rule.key == key) return explained(rule_in_force(*pool->filesystem, path, rule));
  }
  for (const auto each : stdchk::kAllPolicyKeys) {
    if (stdchk::policy_name(each) == key) {
      return explained(policy_in_force(*pool->filesystem, path, each));
    }
  }
  return stdchk::problem(Code::kInvalidArgument, "stdchk_policy_get", 0,
                         std::string("stdchk_policy_get: there is no setting ") + key + ".");
}

}  // namespace

extern "C" {

ssize_t stdchk_set_list(stdchk_pool* pool, const char* folder, struct stdchk_set** sets) {
  const auto found = list(pool, folder);
  if (!found) return failed(found.error());
  const std::size_t bytes = found->size() * sizeof(struct stdchk_set);
  // C programs free the list: malloc() and not new.
  auto* copy = static_cast<struct stdchk_set*>(std::malloc(std::max<std::size_t>(bytes, 1)));
  if (copy == nullptr) return failed(Code::kNoMemory, "stdchk_set_list: no memory for the list.");
  if (bytes > 0) std::memcpy(copy, found->data(), bytes);
  *sets = copy;
  return static_cast<ssize_t>(found->size());
}

void stdchk_free(void* memory) { std::free(memory); }

int stdchk_set_latest(stdchk_pool* pool, const char* folder, const char* application,
                      struct stdchk_set* out) {
  const auto found = list(pool, folder);
  if (!found) return failed(found.error());
  const struct stdchk_set* newest = nullptr;
  for (const auto& set : *found) {
    if ((set.flags & STDCHK_SET_LATEST) == 0) continue;
    if (application != nullptr && std::strcmp(set.application, application) != 0) continue;
    if (newest == nullptr || set.newest_ns > newest->newest_ns) newest = &set;
  }
  if (newest == nullptr) {
    return failed(Code::kNotFound,
                  std::string("stdchk_set_latest: no complete set is in ") + folder +
                      "; the policy `images` says how many images make a set complete.");
  }
  *out = *newest;
  return 0;
}

int stdchk_set_pin(stdchk_pool* pool, const char* folder, const char* set, int pin) {
  const auto of_images = stdchk::parse_set_name(set);
  const std::string name =
      of_images ? stdchk::set_name(of_images->application, of_images->timestep) : set;
  const auto found = find_folder(*pool->filesystem, folder);
  if (!found) return failed(found.error());
  const auto sets = pool->filesystem->sets(found->id);
  if (!sets) return failed(sets.error());
  const bool there =
      std::ranges::any_of(sets->sets, [&](const auto& each) { return name_of(each) == name; });
  if (pin != 0 && !there) {
    return failed(Code::kNotFound, "stdchk_set_pin: no set " + name + " is there.");
  }
  stdchk::msg::SetXattr change;
  change.file = found->id;
  change.name = "user.stdchk.pin." + name;
  change.value = "1";
  change.remove = pin == 0;
  return ended(pool->filesystem->set_xattr(change));
}

int stdchk_set_commit(stdchk_pool* pool, const char* directory) {
  const auto found = find_folder(*pool->filesystem, directory);
  if (!found) return failed(found.error());
  return ended(stdchk::client::commit_set(*pool->filesystem, found->id));
}

int stdchk_policy_set(stdchk_pool* pool, const char* folder, const char* settings) {
  const auto changes = stdchk::parse_folder_settings(settings);
  if (!changes)
    return failed(changes.error().error.code, "stdchk_policy_set: " + changes.error().text);
  const auto found = find_folder(*pool->filesystem, folder);
  if (!found) return failed(found.error());
  const auto done = stdchk::client::change_settings(*pool->filesystem, found->id, *changes);
  return done ? 0 : failed(done.error());
}

ssize_t stdchk_policy_get(stdchk_pool* pool, const char* path, const char* key, char* value,
                          size_t size) {
  const auto text = setting_in_force(pool, path, key);
  if (!text) return failed(text.error());
  if (text->size() + 1 > size) {
    return failed(Code::kRange, "stdchk_policy_get: the buffer is too small for the answer.");
  }
  std::memcpy(value, text->c_str(), text->size() + 1);
  return static_cast<ssize_t>(text->size());
}

}  // extern "C"
