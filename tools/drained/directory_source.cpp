#include "tools/drained/directory_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/files/drain_directory.h"
#include "core/files/drain_manifest.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

class DirectoryFile final : public SourceFile {
 public:
  DirectoryFile(const DrainFolder& root, std::string path, OpenedFile file)
      : root_(root), path_(std::move(path)), file_(std::move(file)) {}
  const struct stat& status() const override { return file_.status; }
  Outcome<std::vector<std::byte>> read(std::uint64_t offset, std::size_t length) const override {
    return read_range(file_.file.get(), offset, length);
  }
  std::optional<DataRange> next_data(std::uint64_t from, std::uint64_t to) const override {
    return stdchk::next_data(file_.file.get(), from, to);
  }
  /// A writer can restore st_mtim, but not st_ctim.
  Outcome<bool> is_unchanged() const override {
    const auto now = root_.status(path_);
    const struct stat& before = file_.status;
    return now && is_same_file(*now, before) && now->st_size == before.st_size &&
           to_ns(now->st_mtim) == to_ns(before.st_mtim) &&
           to_ns(now->st_ctim) == to_ns(before.st_ctim);
  }

 private:
  const DrainFolder& root_;
  const std::string path_;
  const OpenedFile file_;
};

class DirectorySource final : public DrainedSource {
 public:
  DirectorySource(std::string path, DrainFolder root)
      : path_(std::move(path)), root_(std::move(root)) {}
  const Traits& traits() const override { return traits_; }
  Outcome<DrainedTree> tree() const override { return read_tree(path_); }
  Outcome<struct stat> status(const std::string& path) const override {
    return path.empty() ? root_.own_status() : root_.status(path);
  }
  Outcome<FoundLink> link(const std::string& path) const override { return root_.link(path); }
  Outcome<std::unique_ptr<SourceFile>> open(const std::string& path) const override {
    auto opened = root_.open(path, Access::kRead);
    if (!opened) return problem(opened.error());
    return std::make_unique<DirectoryFile>(root_, path, std::move(*opened));
  }
  Outcome<std::string> policy_text(const std::string& folder) const override {
    if (folder.empty()) return read_policy_text(root_);
    const auto opened = root_.folder(folder);
    return opened ? read_policy_text(*opened) : problem(opened.error());
  }
  std::vector<std::string> policies_above() const override;
  std::string place_in(const std::string& drain) const override {
    std::error_code code;
    const fs::path below = drain.empty() ? fs::path() : fs::relative(path_, drain, code);
    const bool is_below = !code && !below.empty() && below != "." && *below.begin() != "..";
    return is_below ? below.string() : std::string();
  }
  bool is_drained_as(const std::string& path, const std::string& drain,
                     const std::string& drained) const override {
    const auto directory = DrainDirectory(drain).open();
    const auto there = directory ? directory->status(drained) : problem(directory.error());
    const auto own = root_.status(path);
    return there && own && is_same_file(*there, *own);
  }

 private:
  const std::string path_;
  const DrainFolder root_;
  const Traits traits_{limits::kMiB, false, false, 1, "the manifest", "are in no manifest"};
};

std::vector<std::string> DirectorySource::policies_above() const {
  std::vector<fs::path> above;
  std::error_code code;
  for (fs::path at = fs::canonical(path_, code); !code && at.has_relative_path();) {
    at = at.parent_path();
    above.push_back(at);
  }
  std::vector<std::string> out;
  for (auto at = above.rbegin(); at != above.rend(); ++at) {
    const auto folder = DrainDirectory(at->string()).open();
    if (!folder) continue;
    if (auto text = read_policy_text(*folder)) out.push_back(std::move(*text));
  }
  return out;
}

}  // namespace

Outcome<std::unique_ptr<DrainedSource>> open_directory_source(const std::string& path) {
  auto root = DrainDirectory(path).open();
  if (!root) return problem(root.error());
  return std::make_unique<DirectorySource>(path, std::move(*root));
}

}  // namespace stdchk::tools
