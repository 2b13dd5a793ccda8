#include "shims/settings.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace stdchk::shims {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void Settings::take_environment(const std::string& prefix) {
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string text = *each;
    const auto equals = text.find('=');
    if (equals != std::string::npos && text.starts_with(prefix)) {
      environment_[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
}

const std::string& Settings::set(const std::string& key, const std::string& value) {
  return program_[key] = value;
}

void Settings::remove(const std::string& key) { program_.erase(key); }

bool Settings::read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    line = trimmed(line.substr(0, line.find_first_of("#;")));
    const auto equals = line.find('=');
    if (line.empty() || line[0] == '[' || equals == std::string::npos) continue;
    file_[trimmed(line.substr(0, equals))] = trimmed(line.substr(equals + 1));
  }
  return !file.bad();
}

std::optional<std::string> Settings::find(const std::string& key) const {
  for (const auto* place : {&environment_, &program_, &file_}) {
    if (const auto found = place->find(key); found != place->end()) return found->second;
  }
  return std::nullopt;
}

std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  return find(key).value_or(otherwise);
}

std::int64_t Settings::number(const std::string& key, std::int64_t otherwise) {
  const auto value = find(key);
  if (!value) return otherwise;
  char* end = nullptr;
  const long long number = std::strtoll(value->c_str(), &end, 10);
  if (!value->empty() && *end == '\0' && number >= 0) return number;
  malformed_.insert(key);
  return otherwise;
}

double Settings::fraction(const std::string& key, double otherwise) {
  const auto value = find(key);
  if (!value) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(value->c_str(), &end);
  if (!value->empty() && *end == '\0' && number >= 0) return number;
  malformed_.insert(key);
  return otherwise;
}

std::vector<std::string> Settings::others(const std::set<std::string>& known) const {
  std::set<std::string> found;
  for (const auto* place : {&environment_, &program_, &file_}) {
    for (const auto& [key, value] : *place) {
      if (!known.contains(key)) found.insert(key);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace stdchk::shims
