#include "fork/pager/pool_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "fork/pager/touch_order.h"

namespace stdchk::pager {
namespace {

/// The extended attribute of an image that keeps the order in which it was touched.
constexpr const char* kOrderAttribute = "user.stdchk.touched";

/// Parts of a path: no empty part, no "." and no "..", which a pool has no meaning for.
bool is_plain(const std::string& path) {
  if (path.empty() || path.size() > limits::kPathBytesMax) return false;
  std::size_t from = 0;
  while (from <= path.size()) {
    const std::size_t slash = std::min(path.find('/', from), path.size());
    const std::string part = path.substr(from, slash - from);
    if (part.empty() || part == "." || part == ".." || part.size() > limits::kNameBytesMax) {
      return false;
    }
    from = slash + 1;
  }
  return true;
}

Result<Attributes> find_newest(client::Filesystem& filesystem, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  FileId parent = kRootFile;
  if (slash != std::string::npos) {
    STDCHK_ASSIGN(const Attributes folder, filesystem.resolve(path.substr(0, slash)));
    parent = folder.id;
  }
  STDCHK_ASSIGN(const Attributes found, filesystem.lookup_fresh(parent, path.substr(slash + 1)));
  if (found.type != FileType::kRegular) {
    return fail(Code::kInvalidArgument, "pager.open: not a regular file");
  }
  return found;
}

PoolSource::Identity identity_of(const Attributes& attributes) {
  return {attributes.id.value, attributes.version, attributes.size_bytes};
}

/// Longer pieces belong to a run.
constexpr std::size_t kShortBytes = 64 * limits::kKiB;

}  // namespace

Result<client::Filesystem*> PoolConnection::get() {
  const MutexLock lock(mutex_);
  if (filesystem_ != nullptr) return filesystem_.get();
  if (options_.manager_address.empty()) {
    return fail(Code::kConfig, "pager.pool: stdchk-pager was started without --manager");
  }
  if (failed_.has_value() && clock_.now() - failed_at_ < kRetry) return fail(*failed_);
  auto connected = client::Filesystem::connect(options_);
  if (!connected) {
    failed_ = connected.error();
    failed_at_ = clock_.now();
    return fail(*failed_);
  }
  filesystem_ = std::move(*connected);
  return filesystem_.get();
}

/// All openers must see one version: the version of `identity`, otherwise the newest version.
Result<PoolSource::Files> PoolSource::open_files(client::Filesystem& filesystem,
                                                 const std::string& path, Identity& identity) {
  STDCHK_ASSIGN(const Attributes found, find_newest(filesystem, path));
  client::OpenFlags flags;
  flags.read = true;
  Files files;
  for (auto& each : files) {
    STDCHK_ASSIGN(std::unique_ptr<client::File> file, filesystem.open(found.id, flags));
    const Identity opened = identity_of(file->attributes());
    if (identity.file == 0) identity = opened;
    if (opened.file != identity.file || opened.version != identity.version) {
      return fail(Code::kStale, "pager.open: the image has a newer version");
    }
    each = std::move(file);
  }
  return files;
}

Result<std::shared_ptr<PoolSource>> PoolSource::open(PoolConnection& pool, std::string path) {
  path.erase(0, path.find_first_not_of('/'));
  if (!is_plain(path)) return fail(Code::kInvalidArgument, "pager.open: not a path in the pool");
  STDCHK_ASSIGN(client::Filesystem * filesystem, pool.get());
  Identity identity;
  STDCHK_ASSIGN(Files files, open_files(*filesystem, path, identity));
  return std::shared_ptr<PoolSource>(
      new PoolSource(pool, std::move(path), identity, std::move(files)));
}

std::shared_ptr<PoolSource> PoolSource::reopen(PoolConnection& pool, std::string path,
                                               const Identity& identity) {
  return std::shared_ptr<PoolSource>(new PoolSource(pool, std::move(path), identity, {}));
}

std::string PoolSource::key() const {
  return fmt::format("pool:{}:{}", identity_.file, identity_.version);
}

Result<client::File*> PoolSource::file(std::size_t index) {
  const MutexLock lock(mutex_);
  if (files_[index] == nullptr) {
    STDCHK_ASSIGN(client::Filesystem * filesystem, pool_.get());
    Identity wanted = identity_;
    STDCHK_ASSIGN(files_, open_files(*filesystem, path_, wanted));
  }
  return files_[index].get();
}

Status PoolSource::read(std::uint64_t offset, MutableByteSpan out) {
  const bool is_short = out.size() <= kShortBytes;
  while (!out.empty()) {
    const std::size_t index = is_short ? offset / kBlockBytes % kJumpFiles : kJumpFiles;
    const std::size_t wanted =
        is_short ? std::min<std::size_t>(out.size(), kBlockBytes) : out.size();
    STDCHK_ASSIGN(client::File * opened, file(index));
    STDCHK_ASSIGN(const std::size_t got, opened->read(offset, out.first(wanted)));
    if (got != wanted) return fail(Code::kCorrupt, "pager.read: the image is shorter");
    offset += got;
    out = out.subspan(got);
  }
  return {};
}

/// The version's map of chunks says it, so no benefactor is asked.
bool PoolSource::is_hole(std::uint64_t offset, std::uint64_t bytes) {
  const auto opened = file(kJumpFiles);
  if (!opened) return false;
  const auto data = (*opened)->seek(offset, client::Seek::kData);
  if (!data) return false;
  return !data->has_value() || **data >= offset + bytes;
}

std::string PoolSource::recorded_order() {
  const auto filesystem = pool_.get();
  if (!filesystem) return {};
  const auto all = (*filesystem)->xattrs(FileId{identity_.file});
  if (!all) return {};
  for (const auto& [name, value] : *all) {
    if (name == kOrderAttribute) return value;
  }
  return {};
}

void PoolSource::record_order(const std::string& order) {
  const auto filesystem = pool_.get();
  if (!filesystem) return;
  msg::SetXattr change;
  change.file = FileId{identity_.file};
  change.name = kOrderAttribute;
  change.value = order;
  const Status kept = (*filesystem)->set_xattr(change);
  if (!kept) {
    log::warning("The order of touches of {} is not kept: {}", path_, describe(kept.error()));
  }
}

}  // namespace stdchk::pager
