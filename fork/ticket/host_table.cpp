#include "fork/ticket/host_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/units.h"

namespace stdchk::fork {
namespace {

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<std::string> apply(const std::string& word, Host& host) {
  if (word.starts_with("slots=")) {
    const auto slots = number(std::string_view(word).substr(6));
    if (!slots || *slots == 0) return "slots= needs a number from 1";
    host.slots = *slots;
    return std::nullopt;
  }
  if (word.starts_with("memory=")) {
    const auto bytes = parse_bytes(std::string_view(word).substr(7));
    if (!bytes) return "memory= needs a size such as 4G";
    host.memory_bytes = *bytes;
    return std::nullopt;
  }
  return fmt::format("\"{}\" is neither slots=N nor memory=SIZE", word);
}

}  // namespace

HostTable::HostTable(std::vector<Host> hosts) {
  for (Host& host : hosts) rows_.push_back({std::move(host), 0, 0});
}

Outcome<std::vector<Placement>> HostTable::request(std::uint64_t ticket, const Demand& demand) {
  if (tickets_.contains(ticket)) {
    return problem(fmt::format("The ticket {} has its clones already.", ticket));
  }
  Held held{std::vector<std::uint32_t>(rows_.size()), demand.clone_bytes};
  for (std::uint32_t given = 0; given < demand.count; given++) {
    Row* best = nullptr;
    for (Row& row : rows_) {
      if (demand.stays_here && !row.host.name.empty()) continue;
      const bool fits = row.used_slots < row.host.slots &&
                        row.host.memory_bytes - row.used_bytes >= demand.clone_bytes;
      if (!fits) continue;
      const auto free = [](const Row& r) { return r.host.slots - r.used_slots; };
      if (best == nullptr || free(row) > free(*best)) best = &row;
    }
    if (best == nullptr) break;
    best->used_slots++;
    best->used_bytes += demand.clone_bytes;
    held.counts[static_cast<std::size_t>(best - rows_.data())]++;
  }
  std::vector<Placement> placements;
  for (std::size_t i = 0; i < rows_.size(); i++) {
    if (held.counts[i] > 0) placements.push_back({rows_[i].host.name, held.counts[i]});
  }
  if (!placements.empty()) tickets_.emplace(ticket, std::move(held));
  return placements;
}

void HostTable::release(std::uint64_t ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  for (std::size_t i = 0; i < rows_.size(); i++) {
    rows_[i].used_slots -= found->second.counts[i];
    rows_[i].used_bytes -= found->second.counts[i] * found->second.clone_bytes;
  }
  tickets_.erase(found);
}

std::string HostTable::describe() const {
  std::string text;
  for (const Row& row : rows_) {
    text += fmt::format("{}: {} of {} slots free, {} of {} memory free\n",
                        row.host.name.empty() ? "this host" : row.host.name,
                        row.host.slots - row.used_slots, row.host.slots,
                        format_bytes(row.host.memory_bytes - row.used_bytes),
                        format_bytes(row.host.memory_bytes));
  }
  return text;
}

Outcome<std::vector<Host>> parse_hosts(std::string_view text, const Host& like) {
  std::vector<Host> hosts;
  std::istringstream in{std::string(text)};
  std::size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    line_number++;
    const auto words = words_of(line);
    if (words.empty()) continue;
    Host host = like;
    host.name = words[0];
    for (std::size_t i = 1; i < words.size(); i++) {
      if (const auto wrong = apply(words[i], host)) {
        return problem(fmt::format("Line {}: {}.", line_number, *wrong));
      }
    }
    const auto same = [&](const Host& other) { return other.name == host.name; };
    if (std::any_of(hosts.begin(), hosts.end(), same)) {
      return problem(fmt::format("Line {}: the host {} is named twice.", line_number, host.name));
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return problem("The list names no host.");
  return hosts;
}

Outcome<std::vector<Host>> hosts_of_slurm(std::string_view names, std::string_view cpus_per_node,
                                          const Host& like) {
  // "16(x2),8": two nodes with 16 processors, then one with 8.
  std::vector<std::uint32_t> cpus;
  std::istringstream in{std::string(cpus_per_node)};
  for (std::string part; std::getline(in, part, ',');) {
    const auto bracket = part.find("(x");
    const auto count = number(std::string_view(part).substr(0, bracket));
    std::optional<std::uint32_t> times = 1;
    if (bracket != std::string::npos) {
      if (!part.ends_with(")"))
        times = std::nullopt;
      else
        times = number(std::string_view(part).substr(bracket + 2, part.size() - bracket - 3));
    }
    if (!count || !times || *count == 0 || *times > 100'000) {
      return problem(fmt::format("SLURM_JOB_CPUS_PER_NODE cannot be read: \"{}\".", cpus_per_node));
    }
    cpus.insert(cpus.end(), *times, *count);
  }
  auto hosts = parse_hosts(names, like);
  if (!hosts) return hosts;
  if (hosts->size() != cpus.size()) {
    return problem(
        fmt::format("Slurm names {} nodes, and processors of {}.", hosts->size(), cpus.size()));
  }
  for (std::size_t i = 0; i < cpus.size(); i++) (*hosts)[i].slots = cpus[i];
  return hosts;
}

}  // namespace stdchk::fork
