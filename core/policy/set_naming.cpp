#include "core/policy/set_naming.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/assert.h"

namespace stdchk {
namespace {

constexpr std::string_view kDefault = "{A}.N{N}.T{T}";

/// Reads the decimal number at the beginning of `text`. Returns its value and its length.
std::optional<std::pair<std::uint64_t, std::size_t>> number_at(std::string_view text) {
  std::uint64_t value = 0;
  const char* const begin = text.data();
  const auto parsed = std::from_chars(begin, begin + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return std::pair(value, static_cast<std::size_t>(parsed.ptr - begin));
}

/// Returns the text between the braces at the beginning of `text`; nothing without a closing brace.
std::optional<std::string_view> field_at(std::string_view text) {
  const std::size_t end = text.find('}');
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(1, end - 1);
}

}  // namespace

Outcome<void> SetNaming::check(std::string_view pattern) {
  std::size_t counts[3] = {};
  bool after_field = false;
  while (!pattern.empty()) {
    if (pattern[0] != '{') {
      if (pattern[0] == '}') return problem("it has } without {");
      after_field = false;
      pattern.remove_prefix(1);
      continue;
    }
    const auto field = field_at(pattern);
    if (!field) return problem("it has { without }");
    const std::size_t which = field->empty() ? 3 : std::string_view("ANT").find((*field)[0]);
    const bool has_words = which == 1 && field->size() > 2 && (*field)[1] == '|';
    if (which > 2 || (field->size() > 1 && !has_words) || field->ends_with('|') ||
        field->find("||") != std::string_view::npos) {
      return problem("its fields are {A}, {N}, {N|WORD} and {T}");
    }
    if (after_field) return problem("two fields need a text between them");
    if (++counts[which] > 1) return problem("a field occurs twice");
    after_field = true;
    pattern.remove_prefix(field->size() + 2);
  }
  if (counts[2] != 1) return problem("it has no {T}");
  return {};
}

SetNaming::SetNaming() : SetNaming(kDefault) {}

SetNaming::SetNaming(std::string_view pattern)
    : pattern_(pattern), is_default_(pattern == kDefault) {
  STDCHK_ASSERT(check(pattern).has_value());
  while (!pattern.empty()) {
    if (pattern[0] == '{') {
      std::string_view field = *field_at(pattern);
      pattern.remove_prefix(field.size() + 2);
      parts_.push_back({field[0], {}});
      field.remove_prefix(1);
      while (!field.empty()) {
        field.remove_prefix(1);  // the "|"
        const std::size_t end = std::min(field.find('|'), field.size());
        words_.emplace_back(field.substr(0, end));
        field.remove_prefix(end);
      }
    } else {
      const std::size_t end = std::min(pattern.find('{'), pattern.size());
      parts_.push_back({0, std::string(pattern.substr(0, end))});
      pattern.remove_prefix(end);
    }
  }
}

bool SetNaming::match_rank(std::string_view name, std::size_t at, std::size_t part,
                           Found& found) const {
  const auto takes = [&](std::uint64_t node, bool is_word, std::size_t length) {
    found.image.node = node;
    found.image.is_word = is_word;
    found.rank_at = at;
    found.rank_end = at + length;
    return match(name, at + length, part + 1, found);
  };
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (name.substr(at).starts_with(words_[i]) && takes(i, true, words_[i].size())) return true;
  }
  const auto number = number_at(name.substr(at));
  return number && takes(number->first, false, number->second);
}

/// Matches the name from `at` on with the parts from `part` on. The longest application counts.
bool SetNaming::match(std::string_view name, std::size_t at, std::size_t part, Found& found) const {
  if (part == parts_.size()) return at == name.size();
  const Part& next = parts_[part];
  if (next.field == 0) {
    return name.substr(at).starts_with(next.text) &&
           match(name, at + next.text.size(), part + 1, found);
  }
  if (next.field == 'N') return match_rank(name, at, part, found);
  if (next.field == 'T') {
    const auto number = number_at(name.substr(at));
    if (!number) return false;
    found.image.timestep = number->first;
    found.timestep_at = at;
    return match(name, at + number->second, part + 1, found);
  }
  for (std::size_t end = name.size(); end > at; --end) {
    if (!match(name, end, part + 1, found)) continue;
    found.image.application = name.substr(at, end - at);
    return true;
  }
  return false;
}

std::optional<SetNaming::Found> SetNaming::find(std::string_view name) const {
  Found found;
  if (name.find('/') != std::string_view::npos || !match(name, 0, 0, found)) return std::nullopt;
  return found;
}

std::optional<PatternName> SetNaming::parse(std::string_view file_name) const {
  if (is_default_) {
    auto image = parse_image_name(file_name);
    if (!image) return std::nullopt;
    return PatternName{std::move(*image)};
  }
  auto found = find(file_name);
  if (!found) return std::nullopt;
  return std::move(found->image);
}

std::string SetNaming::set_of(std::string_view file_name) const {
  const auto found = find(file_name);
  STDCHK_ASSERT(found.has_value());
  std::string name(file_name);
  if (found->rank_at == std::string_view::npos) return name;
  // "A.Ni.Tj" has always been "A.*.Tj", without the N.
  const std::size_t from = is_default_ ? found->rank_at - 1 : found->rank_at;
  return name.replace(from, found->rank_end - from, "*");
}

std::string_view SetNaming::until_timestep(std::string_view file_name) const {
  const auto found = find(file_name);
  STDCHK_ASSERT(found.has_value());
  return file_name.substr(0, found->timestep_at);
}

}  // namespace stdchk
