#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/limits.h"
#include "core/naming.h"
#include "core/units.h"
#include "tools/commands.h"
#include "tools/manifest.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// One file of a manifest, and what came of looking at it.
struct Checked {
  std::string path;
  Json entry;
  std::string fault;  ///< empty: it is as the manifest says
  std::uint64_t checked_bytes = 0;
  std::uint64_t unknown_bytes = 0;  ///< of which no checksum is known
};

/// The bytes [offset, offset + length) of the file, or fewer.
std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length) {
  std::vector<std::byte> bytes(length);
  std::size_t done = 0;
  while (done < length) {
    const ssize_t n =
        ::pread(fd, bytes.data() + done, length - done, static_cast<off_t>(offset + done));
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

bool is_as_said(const Json& piece, ByteSpan bytes, Namer& namer) {
  if (bytes.size() != piece.at("length").get<std::size_t>()) return false;
  if (crc32c(0, bytes) != piece.at("crc32c").get<std::uint32_t>()) return false;
  return !piece.contains("name") || to_hex(namer.name(bytes)) == piece["name"].get<std::string>();
}

void check_open_file(int fd, Checked& file, Namer& namer) {
  struct stat status {};
  const auto size = file.entry.at("size").get<std::uint64_t>();
  if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != size) {
    file.fault = fmt::format("has {} bytes instead of {}", status.st_size, size);
    return;
  }
  for (const Json& piece : file.entry.at("pieces")) {
    const auto offset = piece.at("offset").get<std::uint64_t>();
    const auto length = piece.at("length").get<std::size_t>();
    if (length > limits::kChunkBytesMax) throw std::out_of_range("length");
    if (!is_as_said(piece, read_range(fd, offset, length), namer)) {
      file.fault = fmt::format("is damaged in the {} bytes from {} on", length, offset);
      return;
    }
    file.checked_bytes += length;
  }
  file.unknown_bytes = size - std::min(size, file.checked_bytes);
}

void check_file(Checked& file, Namer& namer) {
  const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    file.fault = "cannot be opened";
    return;
  }
  try {  // the JSON library's exceptions: the manifest is not as this program writes it
    check_open_file(fd, file, namer);
  } catch (const std::exception&) {
    file.fault = "has an entry in the manifest that is damaged";
  }
  ::close(fd);
}

/// The files of all manifests at and below a folder.
Outcome<std::vector<Checked>> files_below(const std::string& folder) {
  std::vector<Checked> files;
  std::error_code code;
  std::size_t manifests = 0;
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code)) {
    if (at->path().filename() != kManifestName) continue;
    ++manifests;
    std::ifstream stream(at->path());
    const Json manifest = Json::parse(stream, nullptr, false);
    if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_object()) {
      return problem("{} is damaged", at->path().string());
    }
    for (const auto& [name, entry] : manifest["files"].items()) {
      files.push_back({(at->path().parent_path() / name).string(), entry, {}});
    }
  }
  if (code) return problem("{} cannot be read: {}", folder, code.message());
  if (manifests == 0) {
    return problem("there is no {} in {} or below; stdchk drain --wait and down --drain write them",
                   kManifestName, folder);
  }
  return files;
}

}  // namespace

int run_verify(const VerifyOptions& options) {
  auto files = files_below(options.path);
  if (!files) return complain(files.error().text);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      Namer namer;
      for (std::size_t at = next++; at < files->size(); at = next++)
        check_file((*files)[at], namer);
    });
  }
  for (auto& thread : threads) thread.join();
  Json bad = Json::array();
  std::uint64_t checked = 0;
  std::uint64_t unknown = 0;
  for (const Checked& file : *files) {
    checked += file.checked_bytes;
    unknown += file.unknown_bytes;
    if (file.fault.empty()) continue;
    bad.push_back({{"path", file.path}, {"fault", file.fault}});
    if (!options.json) fmt::print("{} {}\n", file.path, file.fault);
  }
  if (options.json) {
    print({{"files", files->size()},
           {"bad", bad},
           {"checked_bytes", checked},
           {"unknown_bytes", unknown}});
  } else {
    fmt::print("{} files, {} bad; {} compared with their checksums, holes and parts without: {}\n",
               files->size(), bad.size(), format_bytes(checked), format_bytes(unknown));
  }
  return bad.empty() ? kExitGood : kExitNo;
}

}  // namespace stdchk::tools
