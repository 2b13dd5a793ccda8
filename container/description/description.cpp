#include "container/description/description.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/json_fields.h"

namespace stdchk::container {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kHostNameBytesMax = 63;

bool is_address(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}

/// A name that is safe in a path, in a command and as a host name.
bool is_plain(const std::string& text) {
  return !text.empty() && text.size() <= kHostNameBytesMax && text[0] != '-' &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) || c == '-'; });
}

bool is_path(const std::string& text) {
  return text.starts_with('/') && text.find('\0') == std::string::npos;
}

Json json_of(const BoxDescription& box) {
  Json json{{"version", kVersion},       {"host_name", box.host_name},     {"address", box.address},
            {"root", box.root},          {"directory", box.directory},     {"user", box.user},
            {"group", box.group},        {"environment", box.environment}, {"hosts", box.hosts},
            {"host_file", box.host_file}};
  // Leaves out empty limits, so that the text equals the text of earlier versions.
  if (box.limits != BoxLimits{}) {
    json["limits"] = {{"memory_bytes", box.limits.memory_bytes},
                      {"cpu_percent", box.limits.cpu_percent},
                      {"processes", box.limits.processes}};
  }
  return json;
}

/// Throws, as read_field() does.
void check(bool holds, const char* field) {
  if (!holds) throw std::invalid_argument(fmt::format("the field {} is not valid", field));
}

void check_version(const Json& json) {
  check(integer_of<int>(json.at("version")) == kVersion, "version");
}

BoxDescription box_of(const Json& json) {
  check_version(json);
  BoxDescription box;
  read_field(json, "host_name", box.host_name);
  read_field(json, "address", box.address);
  read_field(json, "root", box.root);
  read_field(json, "directory", box.directory);
  read_field(json, "user", box.user);
  read_field(json, "group", box.group);
  read_field(json, "environment", box.environment);
  read_field(json, "hosts", box.hosts);
  read_field(json, "host_file", box.host_file);
  if (const auto limits = json.find("limits"); limits != json.end()) {
    read_field(*limits, "memory_bytes", box.limits.memory_bytes);
    read_field(*limits, "cpu_percent", box.limits.cpu_percent);
    read_field(*limits, "processes", box.limits.processes);
  }
  check(is_plain(box.host_name), "host_name");
  check(is_address(box.address), "address");
  check(is_path(box.root), "root");
  check(is_path(box.directory), "directory");
  return box;
}

NetworkDescription network_of(const Json& json) {
  check_version(json);
  NetworkDescription network;
  read_field(json, "number", network.number);
  read_field(json, "prefix_bits", network.prefix_bits);
  read_field(json, "underlay", network.underlay);
  read_field(json, "peers", network.peers);
  read_field(json, "folder", network.folder);
  read_field(json, "application", network.application);
  network.lazy = json.value("lazy", false);
  check(network.number > 0 && network.number <= kNetworkNumberMax, "number");
  check(network.prefix_bits >= 8 && network.prefix_bits <= 30, "prefix_bits");
  check(network.underlay.empty() || is_address(network.underlay), "underlay");
  check(std::ranges::all_of(network.peers, is_address), "peers");
  check(is_path(network.folder), "folder");
  check(is_plain(network.application), "application");
  return network;
}

SetDescription set_of(const Json& json) {
  check_version(json);
  SetDescription set;
  read_field(json, "job", set.job);
  read_field(json, "set", set.set);
  read_field(json, "created", set.created);
  read_field(json, "program", set.program);
  for (const auto& box : json.at("boxes")) {
    const auto number = integer_of<std::uint32_t>(box.at("number"));
    set.boxes[number] = box_of(box.at("box"));
    read_field(box, "commands", set.commands[number]);
    read_field(box, "image_bytes", set.image_bytes[number]);
  }
  for (const auto& ask : json.at("asks")) {
    set.asks[ask.at("name").get<std::string>()] = {integer_of<std::uint32_t>(ask.at("box")),
                                                   integer_of<std::uint64_t>(ask.at("command"))};
  }
  read_field(json, "output_bytes", set.output_bytes);
  read_field(json, "error_bytes", set.error_bytes);
  check(is_plain(set.job), "job");
  check(set.set > 0, "set");
  check(set.boxes.count(0) == 1, "boxes");
  return set;
}

template <class Make>
auto parsed(const std::string& text, const char* what, Make make)
    -> Outcome<decltype(make(Json{}))> {
  auto made = read_json([&] { return make(Json::parse(text)); });
  if (made) return made;
  return problem(fmt::format("the description of {} cannot be read: {}", what, made.error().text));
}

}  // namespace

std::string text_of(const BoxDescription& box) { return json_of(box).dump(); }

std::string text_of(const NetworkDescription& network) {
  Json json{{"version", kVersion},
            {"number", network.number},
            {"prefix_bits", network.prefix_bits},
            {"underlay", network.underlay},
            {"peers", network.peers},
            {"folder", network.folder},
            {"application", network.application}};
  if (network.lazy) json["lazy"] = true;
  return json.dump();
}

std::string text_of(const SetDescription& set) {
  Json boxes = Json::array();
  for (const auto& [number, box] : set.boxes) {
    const auto value = [number = number](const auto& map) {
      const auto found = map.find(number);
      return found == map.end() ? std::uint64_t{0} : found->second;
    };
    boxes.push_back({{"number", number},
                     {"box", json_of(box)},
                     {"commands", value(set.commands)},
                     {"image_bytes", value(set.image_bytes)}});
  }
  Json asks = Json::array();
  for (const auto& [name, ask] : set.asks) {
    asks.push_back({{"name", name}, {"box", ask.first}, {"command", ask.second}});
  }
  return Json{{"version", kVersion},
              {"job", set.job},
              {"set", set.set},
              {"created", set.created},
              {"program", set.program},
              {"boxes", boxes},
              {"asks", asks},
              {"output_bytes", set.output_bytes},
              {"error_bytes", set.error_bytes}}
             .dump(1) +
         "\n";
}

Outcome<BoxDescription> parse_box(const std::string& text) {
  return parsed(text, "a container", box_of);
}

Outcome<NetworkDescription> parse_network(const std::string& text) {
  return parsed(text, "the job's network", network_of);
}

Outcome<SetDescription> parse_set(const std::string& text) {
  return parsed(text, "the set", set_of);
}

std::string image_name(const std::string& application, std::uint32_t box, std::uint64_t set) {
  return fmt::format("{}.N{}.T{}", application, box + 1, set);
}

std::string description_name(const std::string& application, std::uint64_t set) {
  return fmt::format("{}.N0.T{}", application, set);
}

std::uint64_t set_of_name(const std::string& application, const std::string& name) {
  const std::string begin = application + ".N0.T";
  if (!name.starts_with(begin)) return 0;
  std::uint64_t set = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + begin.size(), last, set);
  return error == std::errc{} && end == last ? set : 0;
}

}  // namespace stdchk::container
