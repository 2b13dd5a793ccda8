#include "tools/base/set_names.h"

#include <algorithm>
#include <cctype>

#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"

namespace stdchk::tools {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Returns true for a character that a name may go on with.
bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

/// Returns the last digits of the text, without leading zeros; nothing without a digit.
std::optional<std::string_view> last_number(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  if (begin == end) return std::nullopt;
  while (begin + 1 < end && text[begin] == '0') ++begin;
  return text.substr(begin, end - begin);
}

}  // namespace

bool is_named(const msg::ListSets::Entry& set) { return set.timestep == kNamedTimestep; }

std::string name_of_set(const msg::ListSets::Entry& set) {
  return is_named(set) ? set.application : set_name(set.application, set.timestep);
}

void SetIndex::add(const std::string& file_name) {
  const auto image = naming_.parse(file_name);
  if (!image) return;
  const SetKey key{image->application, image->timestep};
  const std::string name = naming_.set_of(file_name);
  SetMember member{file_name, std::nullopt};
  if (!image->is_word && name != file_name) member.rank = image->node;
  by_name_.emplace(name, key);
  Set& set = sets_.try_emplace(key, Set{name, {}}).first->second;
  set.members.push_back(std::move(member));
}

std::optional<SetKey> SetIndex::find(std::string_view name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  const auto set = naming_ == SetNaming() ? parse_set_name(name) : std::nullopt;
  if (!set || !sets_.contains({set->application, set->timestep})) return std::nullopt;
  return SetKey(set->application, set->timestep);
}

std::optional<SetKey> SetIndex::key_of(std::string_view file_name) const {
  const auto image = naming_.parse(file_name);
  if (!image) return std::nullopt;
  return SetKey(image->application, image->timestep);
}

const std::vector<SetMember>& SetIndex::members(const SetKey& set) const {
  static const std::vector<SetMember> none;
  const auto found = sets_.find(set);
  return found == sets_.end() ? none : found->second.members;
}

std::string SetIndex::name_of(const SetKey& set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? std::string() : found->second.name;
}

bool is_named_by(std::string_view pointer_text, std::string_view set) {
  while (!pointer_text.empty() && std::isspace(static_cast<unsigned char>(pointer_text.back()))) {
    pointer_text.remove_suffix(1);
  }
  if (pointer_text.empty() || set.empty()) return false;
  if (std::ranges::all_of(pointer_text, is_digit)) {
    return last_number(pointer_text) == last_number(set);
  }
  for (std::size_t at = pointer_text.find(set); at != std::string_view::npos;
       at = pointer_text.find(set, at + 1)) {
    const std::size_t end = at + set.size();
    const bool begins = at == 0 || !is_of_name(pointer_text[at - 1]);
    if (begins && (end == pointer_text.size() || !is_of_name(pointer_text[end]))) return true;
  }
  return false;
}

}  // namespace stdchk::tools
