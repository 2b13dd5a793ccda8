#include "tools/base/hosts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/units.h"

namespace stdchk::tools {
namespace {

/// Whether the name is safe in a command line and in a path.
bool is_plain(const std::string& text) {
  if (text.empty() || text.size() > 255 || text[0] == '-' || text[0] == '.') return false;
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "._-:@[]%") == std::string::npos;
}

/// Whether the text is plain names with commas between them.
bool is_plain_list(const std::string& text) {
  std::size_t at = 0;
  for (;;) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (!is_plain(text.substr(at, end - at))) return false;
    if (end == text.size()) return true;
    at = end + 1;
  }
}

Outcome<void> read_word(Host& host, const std::string& word) {
  const auto equals = word.find('=');
  const std::string key = word.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (key == "address" && is_plain_list(value)) {
    host.address = value;
    return {};
  }
  if (key == "memory") {
    if (auto bytes = parse_bytes(value); bytes && *bytes > 0) {
      host.memory_bytes = *bytes;
      return {};
    }
    return problem("\"{}\" is not a size such as 512M or 2GiB", word);
  }
  if (key == "benefactors") {
    std::uint32_t number = 0;
    const char* end = value.data() + value.size();
    auto [stop, code] = std::from_chars(value.data(), end, number);
    if (code == std::errc{} && stop == end && number <= 1024) {
      host.benefactors = number;
      return {};
    }
    return problem("\"{}\" is not a whole number from 0 to 1024", word);
  }
  return problem("\"{}\" is not valid; allowed are address=, memory= and benefactors=", word);
}

}  // namespace

Outcome<std::vector<Host>> read_hosts(const std::string& path, std::uint64_t memory_bytes,
                                      std::uint32_t benefactors) {
  std::ifstream file(path);
  if (!file) return problem("--hosts \"{}\" cannot be read", path);
  std::vector<Host> hosts;
  std::set<std::string> names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    Host host{.name = "", .address = "", .memory_bytes = memory_bytes, .benefactors = benefactors};
    if (!(words >> host.name)) continue;
    const std::string address = host.name.substr(host.name.find('@') + 1);
    if (!is_plain(host.name) || !is_plain(address)) {
      return problem("{} line {}: \"{}\" is not a host name", path, number, host.name);
    }
    if (!names.insert(host.name).second) {
      return problem("{} line {}: {} is there twice; use benefactors=N", path, number, host.name);
    }
    for (std::string word; words >> word;) {
      if (auto read = read_word(host, word); !read) {
        return problem("{} line {}: {}", path, number, read.error().text);
      }
    }
    if (host.address.empty()) host.address = address;
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return problem("--hosts \"{}\" names no host", path);
  return hosts;
}

Outcome<std::vector<std::string>> read_rank_hosts(const std::string& file_or_names) {
  std::vector<std::string> hosts;
  std::error_code code;
  const auto found = std::filesystem::status(file_or_names, code);
  if (std::filesystem::exists(found) && !std::filesystem::is_directory(found)) {
    std::ifstream file(file_or_names);
    if (!file) return problem("--hosts \"{}\" cannot be read", file_or_names);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      if (std::string name; words >> name) hosts.push_back(std::move(name));
    }
  } else {
    hosts = split(file_or_names, ',');
  }
  for (const std::string& host : hosts) {
    if (!is_plain(host)) {
      return problem("--hosts \"{}\": \"{}\" is neither a host name nor a file that is there",
                     file_or_names, host);
    }
  }
  if (hosts.empty()) return problem("--hosts \"{}\" names no host", file_or_names);
  return hosts;
}

}  // namespace stdchk::tools
