#include "core/policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "core/base/units.h"
#include "core/policy/image_placement.h"
#include "core/policy/redundancy.h"

namespace stdchk {
namespace {

constexpr std::string_view kInherit = "inherit";
constexpr std::array<std::string_view, 2> kYesNo = {"no", "yes"};
constexpr std::array<std::string_view, 4> kChunkings = {"fixed", "content", "none", "auto"};
constexpr std::array<std::string_view, 2> kCommits = {"stored", "redundant"};
constexpr std::array<std::string_view, 2> kProofs = {"completion", "checksum"};
constexpr std::array<std::string_view, 2> kPlacements = {"striped", "node"};
constexpr std::array<std::string_view, 3> kEnds = {"keep", "last", "remove"};

/// The properties of a key. A value is one of `words`, where the first word stands for `least`.
/// Without words it is a number or a time; `zero`, if set, is the word for 0.
struct Field {
  PolicyKey key;
  std::string_view name;
  std::uint64_t least;
  std::uint64_t most;
  std::uint64_t otherwise;  ///< the default value
  std::string_view zero;
  bool is_time;
  std::span<const std::string_view> words;
  std::string_view meaning;
};

constexpr std::uint64_t kCountMax = 1'000'000'000;
constexpr std::uint64_t kYearsInSeconds = 100ULL * 366 * 86400;

constexpr Field kFields[] = {
    {PolicyKey::kKeep,
     "keep",
     0,
     kCountMax,
     0,
     "all",
     false,
     {},
     "number of newest complete sets that stay"},
    {PolicyKey::kPurgeAfter,
     "purge-after",
     0,
     kYearsInSeconds,
     0,
     "never",
     true,
     {},
     "age at which a set is removed"},
    {PolicyKey::kMustBeDrained,
     "must-be-drained",
     0,
     1,
     0,
     {},
     false,
     kYesNo,
     "only a drained set counts as complete, or is removed"},
    {PolicyKey::kDrainEvery,
     "drain-every",
     1,
     kCountMax,
     1,
     {},
     false,
     {},
     "drain only every k-th set"},
    {PolicyKey::kImages,
     "images",
     0,
     kCountMax,
     0,
     "unknown",
     false,
     {},
     "images that make a set whole: one for each rank"},
    {PolicyKey::kChunking,
     "chunking",
     1,
     4,
     1,
     {},
     false,
     kChunkings,
     "how images are cut, and whether chunks are named by content"},
    {PolicyKey::kCopies,
     "copies",
     1,
     8,
     1,
     {},
     false,
     {},
     "copies of each chunk on different benefactors, or parity: m blocks for each k chunks"},
    {PolicyKey::kCommit,
     "commit",
     1,
     2,
     1,
     {},
     false,
     kCommits,
     "close() waits for this: one stored copy, or all copies or parity"},
    {PolicyKey::kEnd,
     "end",
     1,
     3,
     1,
     {},
     false,
     kEnds,
     "the sets that stay, here and drained, after stdchk down --success: all, the last, or none"},
    {PolicyKey::kProof,
     "proof",
     1,
     2,
     1,
     {},
     false,
     kProofs,
     "close() takes this as proof that a chunk is stored: the completion of the write, or a "
     "checksum that its benefactor has compared"},
    {kPlacementKey,
     "placement",
     1,
     2,
     1,
     {},
     false,
     kPlacements,
     "where an image lies: striped over benefactors, or whole on its writer's node, with each "
     "further copy whole on another node"},
};

const Field* field_of(PolicyKey key) {
  const auto found = std::ranges::find(kFields, key, &Field::key);
  return found == std::end(kFields) ? nullptr : found;
}

/// Returns true for settings that this version implements.
bool is_built(PolicySetting setting) {
  if (setting.key == kPlacementKey) return true;
  switch (setting.key) {
    case PolicyKey::kKeep:
    case PolicyKey::kPurgeAfter:
    case PolicyKey::kMustBeDrained:
    case PolicyKey::kDrainEvery:
    case PolicyKey::kImages:
    case PolicyKey::kCopies:
    case PolicyKey::kCommit:
    case PolicyKey::kEnd:
    case PolicyKey::kProof:
      return true;
    case PolicyKey::kChunking:
      return setting.value != static_cast<std::uint64_t>(Chunking::kAuto);
  }
  return false;
}

std::string list_of(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

/// Returns true when the value is a redundancy with parity, which is neither a plain number nor a
/// word.
bool is_parity(const Field& field, std::uint64_t value) {
  const auto redundancy = redundancy_of(value);
  return field.key == PolicyKey::kCopies && redundancy && redundancy->has_parity();
}

std::string allowed(const Field& field) {
  if (!field.words.empty()) return list_of(field.words);
  std::string text = field.is_time
                         ? "a time such as 90s, 15m, 12h or 7d"
                         : fmt::format("a whole number from {} to {}",
                                       std::max<std::uint64_t>(field.least, 1), field.most);
  if (!field.zero.empty()) text = fmt::format("{} or {}", field.zero, text);
  if (field.key == PolicyKey::kCopies) text += ", or " + std::string(kParityAllowed);
  return text;
}

std::optional<std::uint64_t> parse_value(const Field& field, std::string_view text) {
  if (!field.words.empty()) {
    const auto found = std::ranges::find(field.words, text);
    if (found == field.words.end()) return std::nullopt;
    return field.least + static_cast<std::uint64_t>(found - field.words.begin());
  }
  if (!field.zero.empty() && text == field.zero) return 0;
  if (field.key == PolicyKey::kCopies) {
    const auto parity = parse_redundancy(text);
    if (parity && parity->has_parity()) return parity->number();
  }
  std::uint64_t value = 0;
  if (field.is_time) {
    const auto seconds = parse_seconds(text);
    if (!seconds) return std::nullopt;
    value = *seconds;
  } else {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  }
  if (value < std::max<std::uint64_t>(field.least, 1) || value > field.most) return std::nullopt;
  return value;
}

constexpr const char* kWhere = "policy";

tl::unexpected<Problem> refuse(std::string text) {
  return problem(Code::kInvalidArgument, kWhere, 0, std::move(text));
}

}  // namespace

std::optional<std::uint64_t> Policy::find(PolicyKey key) const {
  const auto found = std::ranges::find(settings, key, &PolicySetting::key);
  if (found == settings.end()) return std::nullopt;
  return found->value;
}

std::uint64_t Policy::get(PolicyKey key) const {
  const Field* const field = field_of(key);
  return find(key).value_or(field == nullptr ? 0 : field->otherwise);
}

std::optional<Chunking> Policy::chunking() const {
  const auto value = find(PolicyKey::kChunking);
  if (!value) return std::nullopt;
  return static_cast<Chunking>(*value);
}

void Policy::apply(const Policy& changes) {
  for (const PolicySetting& change : changes.settings) {
    std::erase_if(settings, [&](const PolicySetting& one) { return one.key == change.key; });
    if (change.value != kPolicyInherit) settings.push_back(change);
  }
  std::ranges::sort(settings, {}, &PolicySetting::key);
}

void Policy::inherit(const Policy& above) {
  for (const PolicySetting& setting : above.settings) {
    if (!find(setting.key)) settings.push_back(setting);
  }
  std::ranges::sort(settings, {}, &PolicySetting::key);
}

std::string_view policy_name(PolicyKey key) {
  const Field* const field = field_of(key);
  return field == nullptr ? std::string_view{} : field->name;
}

std::string_view policy_meaning(PolicyKey key) {
  const Field* const field = field_of(key);
  return field == nullptr ? std::string_view{} : field->meaning;
}

std::string format_value(PolicySetting setting) {
  const Field* const field = field_of(setting.key);
  if (setting.value == kPolicyInherit) return std::string(kInherit);
  if (field != nullptr && !field->words.empty() && setting.value >= field->least &&
      setting.value <= field->most) {
    return std::string(field->words[setting.value - field->least]);
  }
  if (field != nullptr && setting.value == 0 && !field->zero.empty()) {
    return std::string(field->zero);
  }
  if (field != nullptr && is_parity(*field, setting.value)) return redundancy_text(setting.value);
  return field != nullptr && field->is_time ? format_seconds(setting.value)
                                            : std::to_string(setting.value);
}

Outcome<PolicySetting> parse_setting(std::string_view name, std::string_view value) {
  const auto field = std::ranges::find(kFields, name, &Field::name);
  if (field == std::end(kFields)) {
    std::vector<std::string_view> names;
    for (const Field& one : kFields) names.push_back(one.name);
    return refuse(fmt::format("no policy is called \"{}\"; there are {}", name, list_of(names)));
  }
  if (value == kInherit) return PolicySetting{field->key, kPolicyInherit};
  const auto parsed = parse_value(*field, value);
  if (!parsed) {
    return refuse(
        fmt::format("{}={} is not valid; allowed: {}, inherit", name, value, allowed(*field)));
  }
  return PolicySetting{field->key, *parsed};
}

namespace {

/// Returns the position of the first blank or comma outside parentheses.
std::size_t end_of_word(std::string_view text) {
  bool within = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == ')') within = text[i] == '(';
    if (!within && (text[i] == ' ' || text[i] == ',')) return i;
  }
  return text.size();
}

}  // namespace

Outcome<Policy> parse_policy(std::string_view text) {
  Policy out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, end_of_word(text));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return refuse(fmt::format("\"{}\" is not of the form KEY=VALUE", word));
    }
    const auto setting = parse_setting(word.substr(0, equals), word.substr(equals + 1));
    if (!setting) return tl::unexpected(setting.error());
    if (const auto refused = check_setting(*setting)) return tl::unexpected(*refused);
    std::erase_if(out.settings, [&](const auto& one) { return one.key == setting->key; });
    out.settings.push_back(*setting);
  }
  if (const auto refused = check_together(out)) return tl::unexpected(*refused);
  return out;
}

std::optional<Problem> check_setting(PolicySetting setting) {
  const Field* const field = field_of(setting.key);
  if (field == nullptr) {
    return Problem{{Code::kUnsupported, 0, kWhere},
                   fmt::format("policy number {} is not known", static_cast<int>(setting.key))};
  }
  if (setting.value == kPolicyInherit) return std::nullopt;
  const bool is_word_or_number = setting.value != 0 || field->least == 0;
  const bool in_range = setting.value <= field->most || is_parity(*field, setting.value);
  if (!is_word_or_number || !in_range) {
    return Problem{{Code::kInvalidArgument, 0, kWhere},
                   fmt::format("{}={} is not valid; allowed: {}", field->name, setting.value,
                               allowed(*field))};
  }
  if (!is_built(setting)) {
    return Problem{
        {Code::kUnsupported, 0, kWhere},
        fmt::format("{}={} is not available in this version", field->name, format_value(setting))};
  }
  return std::nullopt;
}

std::optional<Problem> check_together(const Policy& policy) {
  const auto copies = policy.find(PolicyKey::kCopies);
  const auto redundancy = redundancy_of(copies.value_or(1));
  if (placement_of(policy) != ImagePlacement::kNode || !redundancy || !redundancy->has_parity()) {
    return std::nullopt;
  }
  return Problem{
      {Code::kInvalidArgument, 0, kWhere},
      fmt::format("placement=node does not go with copies={}: parity needs the chunks of "
                  "an image on different nodes; use copies=2, or placement=striped",
                  redundancy_text(*redundancy))};
}

std::optional<Problem> check_change(Policy before, const Policy& changes) {
  if (!changes.find(PolicyKey::kCopies) && !changes.find(kPlacementKey)) return std::nullopt;
  before.apply(changes);
  return check_together(before);
}

}  // namespace stdchk
