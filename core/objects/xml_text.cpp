#include "core/objects/xml_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace stdchk {
namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};

/// Decodes an entity at the begin of `text`. Returns its length; 0: there is none.
std::size_t decode_entity(std::string_view text, std::string& out) {
  for (const auto& [entity, character] : kEntities) {
    if (!text.starts_with(entity)) continue;
    out += character;
    return entity.size();
  }
  if (!text.starts_with("&#")) return 0;
  const std::size_t end = text.substr(0, 10).find(';');
  if (end == std::string_view::npos) return 0;
  const bool is_hex = text.size() > 2 && text[2] == 'x';
  const std::string_view digits = text.substr(is_hex ? 3 : 2, end - (is_hex ? 3 : 2));
  unsigned value = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  // Keys are asked for in their encoded form, so no text needs other characters.
  if (parsed.ptr != digits.data() + digits.size() || value == 0 || value > 127) return 0;
  out += static_cast<char>(value);
  return end + 1;
}

}  // namespace

std::vector<std::string_view> xml_elements(std::string_view xml, std::string_view name) {
  std::vector<std::string_view> out;
  const std::string open = fmt::format("<{}", name);
  const std::string close = fmt::format("</{}>", name);
  std::size_t at = 0;
  while ((at = xml.find(open, at)) != std::string_view::npos) {
    at += open.size();
    if (at >= xml.size()) break;
    if (xml[at] != '>' && xml[at] != ' ' && xml[at] != '/') continue;
    const std::size_t begin = xml.find('>', at);
    if (begin == std::string_view::npos) break;
    if (xml[begin - 1] == '/') {
      out.emplace_back();
      at = begin + 1;
      continue;
    }
    const std::size_t end = xml.find(close, begin);
    if (end == std::string_view::npos) break;
    out.push_back(xml.substr(begin + 1, end - begin - 1));
    at = end + close.size();
  }
  return out;
}

std::optional<std::string> xml_text(std::string_view xml, std::string_view name) {
  const auto elements = xml_elements(xml, name);
  if (elements.empty()) return std::nullopt;
  std::string_view text = elements.front();
  std::string out;
  while (!text.empty()) {
    std::size_t used = text.front() == '&' ? decode_entity(text, out) : 0;
    if (used == 0) {
      out += text.front();
      used = 1;
    }
    text.remove_prefix(used);
  }
  return out;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto entity = std::ranges::find(kEntities, c, &std::pair<std::string_view, char>::second);
    if (entity != kEntities.end()) {
      out += entity->first;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace stdchk
