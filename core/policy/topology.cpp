#include "core/policy/topology.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stdchk {
namespace {

/// Stores a word such as "rack=r1" in the place. Returns the problem, or an empty text.
std::string set_level(const std::string& word, Topology::Place& place) {
  const std::size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  std::string* const to = key == "node"     ? &place.node
                          : key == "rack"   ? &place.rack
                          : key == "switch" ? &place.switch_name
                                            : nullptr;
  const bool has_value = equals != word.npos && equals + 1 < word.size();
  if (to == nullptr || !has_value) {
    return fmt::format("\"{}\" is not node=NAME, rack=NAME or switch=NAME", word);
  }
  if (!to->empty()) return fmt::format("{} is stated twice", key);
  *to = word.substr(equals + 1);
  return {};
}

}  // namespace

Outcome<Topology> Topology::parse(std::string_view text) {
  Topology out;
  std::istringstream lines{std::string(text)};
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (!(words >> name)) continue;
    Place place;
    std::string problem = name.find('=') != name.npos ? "a line begins with a host's name" : "";
    for (std::string word; problem.empty() && words >> word;) problem = set_level(word, place);
    if (problem.empty() && !out.places_.try_emplace(name, place).second) {
      problem = fmt::format("host {} is listed twice", name);
    }
    if (!problem.empty()) return stdchk::problem(fmt::format("line {}: {}", number, problem));
  }
  return out;
}

Outcome<Topology> Topology::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return problem(fmt::format("cannot be read: {}", std::strerror(errno)));
  return parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

const Topology::Place* Topology::find(std::string_view host_name) const {
  auto found = places_.find(host_name);
  if (found == places_.end()) found = places_.find(host_name.substr(0, host_name.find('.')));
  return found == places_.end() ? nullptr : &found->second;
}

}  // namespace stdchk
