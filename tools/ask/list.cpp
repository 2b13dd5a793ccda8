#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/units.h"
#include "core/chunk/naming.h"
#include "core/policy/image_name.h"
#include "core/policy/redundancy.h"
#include "tools/ask/commands.h"
#include "tools/ask/series.h"
#include "tools/ask/shared_bytes.h"
#include "tools/ask/usage.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

/// A file with its attributes and places.
struct Row {
  std::string name;
  Attributes attributes;
  std::size_t chunks = 0;
  std::map<BenefactorId, std::uint64_t> bytes_at;  ///< content bytes on each benefactor
  std::uint64_t bytes_nowhere = 0;                 ///< only in the drain directory
  std::vector<ChunkUse> uses;
  std::uint64_t shared_bytes = 0;  ///< in chunks that older files of the folder have, too
  std::size_t copies_least = 0;    ///< least number of copies of a chunk in memory

  std::uint64_t new_bytes() const {
    return attributes.stored_bytes - std::min(attributes.stored_bytes, shared_bytes);
  }
  Redundancy wanted;
  std::size_t chunks_lacking = 0;  ///< chunks that lack wanted copies or parity
  std::string trouble;
};

void count_chunks(const ChunkMap& map, Row& row) {
  row.chunks = map.chunks.size();
  row.uses = chunk_uses(map);
  for (const Chunk& chunk : map.chunks) {
    if (chunk.copies.empty()) row.bytes_nowhere += chunk.length;
    const std::size_t copies = chunk.copies.size();
    if (copies == 0) continue;
    row.copies_least = row.copies_least == 0 ? copies : std::min(row.copies_least, copies);
    if (copies < row.wanted.copies) ++row.chunks_lacking;
    for (const Extent& extent : chunk.copies) row.bytes_at[extent.benefactor] += chunk.length;
  }
}

Row make_row(client::Filesystem& filesystem, const std::string& name, const Attributes& attributes,
             bool details) {
  Row row;
  row.name = name;
  row.attributes = attributes;
  if (!details || attributes.type != FileType::kRegular || attributes.version == 0) return row;
  auto map = filesystem.map(attributes.id);
  if (map) {
    row.attributes = map->first;
    row.wanted = redundancy_of(row.attributes.copies).value_or(Redundancy{});
    count_chunks(map->second, row);
    if (row.wanted.has_parity()) {
      // The map does not say which chunks have parity, so ask the manager for the missing parity.
      const auto debt = filesystem.debt(attributes.id, row.attributes.version);
      if (debt) row.chunks_lacking = debt->chunks;
    }
  } else {
    row.trouble = describe(map.error());
  }
  return row;
}

/// Finds the bytes that each file shares with older files of the listing, or with its own earlier
/// bytes. The oldest file with a chunk counts as the file that brought it into the pool.
void find_shared(std::vector<Row>& rows) {
  std::vector<Row*> by_age;
  by_age.reserve(rows.size());
  for (Row& row : rows) by_age.push_back(&row);
  std::ranges::stable_sort(by_age, {}, [](const Row* row) { return row->attributes.mtime_ns; });
  std::set<ChunkName> seen;
  for (Row* row : by_age) {
    row->shared_bytes = count_shared(row->uses, seen);
    row->uses = {};
  }
}

Json places(const Row& row) {
  Json list = Json::array();
  for (const auto& [benefactor, bytes] : row.bytes_at) {
    list.push_back({{"benefactor", benefactor.value}, {"bytes", bytes}});
  }
  return list;
}

Json row_to_json(const Row& row, bool details) {
  Json json = to_json(row.name, row.attributes);
  if (auto image = parse_image_name(row.name.substr(row.name.rfind('/') + 1))) {
    json["image"] = {
        {"application", image->application}, {"node", image->node}, {"timestep", image->timestep}};
  }
  if (details && row.attributes.type == FileType::kRegular) {
    json["shared_bytes"] = row.shared_bytes;
    json["new_bytes"] = row.new_bytes();
    json["chunks"] = row.chunks;
    json["benefactors"] = places(row);
    json["bytes_only_drained"] = row.bytes_nowhere;
    json["copies"] = row.copies_least;
    json["copies_wanted"] = row.wanted.copies;
    if (row.wanted.has_parity()) json["parity"] = redundancy_text(row.wanted);
    json["chunks_lacking_copies"] = row.chunks_lacking;
    if (!row.trouble.empty()) json["error"] = row.trouble;
  }
  return json;
}

std::string place_text(const Row& row) {
  if (!row.trouble.empty()) return row.trouble;
  std::string text;
  for (const auto& [benefactor, bytes] : row.bytes_at) {
    text += fmt::format("{}b{}", text.empty() ? "" : ",", benefactor.value);
  }
  if (row.bytes_nowhere > 0) text += text.empty() ? "drained file" : ",drained file";
  return text.empty() ? "-" : text;
}

/// Returns for example "2", or "1 of 2" while copies are missing. With parity it is "ec(4,1)", or
/// "part of ec(4,1)".
std::string copies_text(const Row& row) {
  if (row.copies_least == 0) return "-";
  if (row.wanted.has_parity()) {
    return (row.chunks_lacking == 0 ? "" : "part of ") + redundancy_text(row.wanted);
  }
  if (row.chunks_lacking == 0) return std::to_string(row.copies_least);
  return fmt::format("{} of {}", row.copies_least, row.wanted.copies);
}

std::vector<std::string> cells(const Row& row) {
  const Attributes& attributes = row.attributes;
  if (attributes.type == FileType::kDirectory) {
    return {row.name + "/", "", "", "", "", "", "", "", time_text(attributes.mtime_ns)};
  }
  return {row.name,
          format_bytes(attributes.size_bytes),
          format_bytes(row.new_bytes()),
          format_bytes(row.shared_bytes),
          std::to_string(row.chunks),
          copies_text(row),
          place_text(row),
          std::string(drain_name(attributes.drain)),
          time_text(attributes.mtime_ns)};
}

/// Groups the images of a series under a heading, ordered by timestep.
void print_details(std::vector<Row> rows) {
  std::map<std::pair<std::string, std::uint64_t>, std::vector<std::pair<std::uint64_t, Row>>>
      series;
  std::vector<std::vector<std::string>> table = {
      {"NAME", "SIZE", "NEW", "SHARED", "CHUNKS", "COPIES", "ON", "DRAIN", "CHANGED"}};
  for (auto& row : rows) {
    auto image = parse_image_name(row.name);
    if (image && row.attributes.type == FileType::kRegular) {
      series[{image->application, image->node}].emplace_back(image->timestep, std::move(row));
    } else {
      table.push_back(cells(row));
    }
  }
  for (auto& [key, versions] : series) {
    std::ranges::sort(versions, {}, [](const auto& version) { return version.first; });
    std::uint64_t bytes = 0;
    std::size_t drained = 0;
    for (const auto& [timestep, row] : versions) {
      bytes += row.attributes.size_bytes;
      drained += row.attributes.drain == DrainState::kDrained ? 1 : 0;
    }
    table.push_back({fmt::format("{}.N{}", key.first, key.second), format_bytes(bytes), "", "", "",
                     "",
                     fmt::format("{} version{}", versions.size(), versions.size() == 1 ? "" : "s"),
                     fmt::format("{} drained", drained), ""});
    for (const auto& [timestep, row] : versions) {
      auto line = cells(row);
      line[0] = "  " + line[0];
      table.push_back(std::move(line));
    }
  }
  print_table(table, {1, 2, 3, 4});
}

/// Lists the writes at and below `options.path` that ended without a commit. The path itself need
/// not exist, because an aborted new file has no name; its folder must exist.
int list_aborted(const ListOptions& options) {
  namespace fs = std::filesystem;
  auto located = locate(options.pool, options.path);
  std::string below = located ? located->path : "";
  if (!located && !options.path.empty()) {
    const fs::path path = fs::absolute(options.path).lexically_normal();
    if (auto folder = locate(options.pool, path.parent_path())) {
      below = (fs::path(folder->path) / path.filename()).string();
      located = std::move(folder);
    }
  }
  if (!located) return complain(located.error().text);
  auto entries = located->filesystem->aborted();
  if (!entries) return complain(describe(entries.error()));
  std::erase_if(*entries, [&](const auto& entry) {
    return !below.empty() && entry.path != below && !entry.path.starts_with(below + "/");
  });
  Json list = Json::array();
  std::vector<std::vector<std::string>> table = {{"PATH", "WRITTEN", "WHEN", "HOST"}};
  for (const auto& entry : *entries) {
    list.push_back({{"path", entry.path},
                    {"bytes", entry.bytes},
                    {"when_ns", entry.when_ns},
                    {"host", entry.host_name}});
    table.push_back(
        {entry.path, format_bytes(entry.bytes), time_text(entry.when_ns), entry.host_name});
  }
  if (options.json) {
    print(list);
  } else if (table.size() > 1) {
    print_table(table, {1});
  }
  return kExitGood;
}

Json usage_to_json(const Usage& usage) {
  return {{"files", usage.files},
          {"logical_bytes", usage.logical_bytes},
          {"stored_bytes", usage.stored_bytes},
          {"drained_bytes", usage.drained_bytes},
          {"unnamed_bytes", usage.unnamed_bytes},
          {"chunks", usage.chunks}};
}

Json pool_to_json(const msg::StatPool::Reply& pool) {
  return {{"files", pool.file_count},
          {"chunks", pool.chunk_count},
          {"logical_bytes", pool.logical_bytes},
          {"stored_bytes", pool.stored_bytes}};
}

std::string bytes_text(std::uint64_t logical, std::uint64_t stored) {
  const double share =
      logical == 0 ? 100.0 : 100.0 * static_cast<double>(stored) / static_cast<double>(logical);
  return fmt::format("{} stored in {} ({:.1f} %)", format_bytes(logical), format_bytes(stored),
                     share);
}

Json series_to_json(const std::vector<SeriesReport::Line>& lines) {
  Json list = Json::array();
  for (const auto& line : lines) {
    list.push_back({{"series", line.series},
                    {"newest", line.newest},
                    {"naming", series_state_name(line.state)},
                    {"found_again", line.found_again}});
  }
  return list;
}

/// Prints one line for each state, with its series.
void print_series(const std::vector<SeriesReport::Line>& lines) {
  constexpr std::size_t kNamesMost = 4;
  std::map<SeriesState, std::vector<const SeriesReport::Line*>> by_state;
  for (const auto& line : lines) by_state[line.state].push_back(&line);
  for (const auto& [state, all] : by_state) {
    std::string names;
    double found = 0;
    for (std::size_t i = 0; i < std::min(all.size(), kNamesMost); ++i) {
      if (i > 0) names += ", ";
      names += all[i]->series;
    }
    for (const auto* line : all) {
      found += line->found_again / static_cast<double>(all.size());
    }
    fmt::print("  naming   {}: {}{}", series_state_name(state), names,
               all.size() > kNamesMost ? fmt::format(" and {} more", all.size() - kNamesMost) : "");
    if (state == SeriesState::kPays || state == SeriesState::kNamed) {
      fmt::print("; {:.1f} % of the newest image is in the image before it", 100 * found);
    }
    fmt::print("\n");
  }
}

void print_usage(const Usage& usage, const Attributes& of, const msg::StatPool::Reply& pool) {
  const bool is_directory = of.type == FileType::kDirectory;
  if (is_directory) fmt::print("  files    {}\n", usage.files);
  fmt::print("  bytes    {}, {} chunks\n", bytes_text(usage.logical_bytes, usage.stored_bytes),
             usage.chunks);
  if (usage.unnamed_bytes > 0) {
    fmt::print("           {} of them not named by their content\n",
               format_bytes(usage.unnamed_bytes));
  }
  if (is_directory && usage.drained_bytes > 0) {
    fmt::print("           {} more in the drain directory only\n",
               format_bytes(usage.drained_bytes));
  }
  fmt::print("  pool     {}, {} files, {} chunks\n",
             bytes_text(pool.logical_bytes, pool.stored_bytes), pool.file_count, pool.chunk_count);
}

/// Compares a single file with the other files of its folder: which bytes older files have, too,
/// and the state of its series.
Outcome<void> compare_in_folder(const Located& located, Row& row, SeriesReport& series) {
  if (located.attributes.type != FileType::kRegular) return {};
  const std::size_t slash = located.path.rfind('/');
  const bool in_root = slash == std::string::npos;
  const auto directory =
      located.filesystem->resolve(in_root ? std::string() : located.path.substr(0, slash));
  if (!directory) return failed("the file's directory", directory.error());
  const auto shared =
      shared_with_older(*located.filesystem, directory->id, row.attributes, row.uses);
  if (!shared) return problem(shared.error());
  row.shared_bytes = *shared;
  return add_series_usage(*located.filesystem, directory->id,
                          located.path.substr(in_root ? 0 : slash + 1), series);
}

}  // namespace

int run_list(const ListOptions& options) {
  if (options.aborted) return list_aborted(options);
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  std::vector<Row> rows;
  if (located->attributes.type == FileType::kDirectory) {
    auto entries = filesystem.read_directory(located->attributes.id);
    if (!entries) return complain(describe(entries.error()));
    for (const auto& entry : *entries) {
      rows.push_back(make_row(filesystem, entry.name, entry.attributes, options.details));
    }
  } else {
    const std::string name = located->path.substr(located->path.rfind('/') + 1);
    rows.push_back(make_row(filesystem, name, located->attributes, options.details));
  }
  find_shared(rows);
  if (options.json) {
    Json list = Json::array();
    for (const auto& row : rows) list.push_back(row_to_json(row, options.details));
    print(list);
  } else if (options.details) {
    print_details(std::move(rows));
  } else {
    for (const auto& row : rows) {
      fmt::print("{}{}\n", shown(row.name), row.attributes.type == FileType::kDirectory ? "/" : "");
    }
  }
  const bool trouble =
      std::ranges::any_of(rows, [](const Row& row) { return !row.trouble.empty(); });
  return trouble ? kExitError : kExitGood;
}

int run_stat(const StatOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  Row row = make_row(*located->filesystem, located->path, located->attributes, true);
  auto benefactors = located->filesystem->benefactors();
  if (!benefactors) return complain(describe(benefactors.error()));
  std::map<std::uint64_t, const msg::BenefactorInfo*> known;
  for (const auto& info : *benefactors) known[info.id.value] = &info;
  SeriesReport series;
  const auto usage = measure_usage(*located->filesystem, located->attributes, series);
  if (!usage) return complain(usage.error().text);
  const auto compared = compare_in_folder(*located, row, series);
  if (!compared) return complain(compared.error().text);
  const auto pool = located->filesystem->stat_pool();
  if (!pool) return complain(describe(pool.error()));
  if (options.json) {
    Json json = row_to_json(row, true);
    json["usage"] = usage_to_json(*usage);
    json["naming"] = series_to_json(series.lines());
    json["pool"] = pool_to_json(*pool);
    if (json.contains("benefactors")) {
      for (auto& place : json["benefactors"]) {
        auto found = known.find(place["benefactor"]);
        if (found == known.end()) continue;
        place["host"] = found->second->host_name;
        place["pid"] = found->second->pid;
      }
    }
    print(json);
    return row.trouble.empty() ? kExitGood : kExitError;
  }
  const Attributes& attributes = row.attributes;
  fmt::print("{}\n  type     {}\n  size     {} ({} bytes)\n", shown(options.path),
             type_name(attributes.type), format_bytes(attributes.size_bytes),
             attributes.size_bytes);
  fmt::print("  version  {}, changed {}\n  mode     {:04o}, owner {}:{}\n", attributes.version,
             time_text(attributes.mtime_ns), attributes.mode, attributes.uid, attributes.gid);
  print_usage(*usage, attributes, *pool);
  if (attributes.type == FileType::kRegular) {
    fmt::print("  new      {}; older files of the folder have {}, too\n",
               format_bytes(row.new_bytes()), format_bytes(row.shared_bytes));
  }
  print_series(series.lines());
  if (attributes.type != FileType::kRegular) return kExitGood;
  if (row.copies_least > 0) {
    fmt::print(
        "  copies   {}{}\n", copies_text(row),
        row.chunks_lacking == 0 ? "" : fmt::format(", missing of {} chunks", row.chunks_lacking));
  }
  for (const auto& [benefactor, bytes] : row.bytes_at) {
    auto found = known.find(benefactor.value);
    fmt::print("    {:>10} on benefactor {}{}\n", format_bytes(bytes), benefactor.value,
               found == known.end()
                   ? " (gone)"
                   : fmt::format(" ({}, pid {})", found->second->host_name, found->second->pid));
  }
  if (row.bytes_nowhere > 0) {
    fmt::print("    {:>10} only in the drain directory\n", format_bytes(row.bytes_nowhere));
  }
  fmt::print("  drain    {}\n", drain_name(attributes.drain));
  if (!row.trouble.empty()) return complain(row.trouble);
  return kExitGood;
}

}  // namespace stdchk::tools
