#include "fork/pager/cast_source.h"

#include "fork/multicast/manifest.h"

namespace stdchk::pager {
namespace {

constexpr std::string_view kBeginning = "cast://";

Result<multicast::SourceOptions> options_of(const CastPlace& place, const std::string& name) {
  if (!place.group) {
    return fail(Code::kConfig, "pager.cast: stdchk-pager was started without --cast-secret-file");
  }
  const std::size_t slash = name.find('/', kBeginning.size());
  if (!CastSource::is_name(name) || slash == std::string::npos) {
    return fail(Code::kInvalidArgument, "pager.cast: not cast://ADDRESS:PORT/ROOT");
  }
  const auto from =
      multicast::parse_address(name.substr(kBeginning.size(), slash - kBeginning.size()));
  const auto root = multicast::parse_root(name.substr(slash + 1));
  if (!from || !root) {
    return fail(Code::kInvalidArgument, "pager.cast: not cast://ADDRESS:PORT/ROOT");
  }
  multicast::SourceOptions options;
  options.group = *place.group;
  options.from = *from;
  options.own = place.own;
  options.root = *root;
  return options;
}

}  // namespace

bool CastSource::is_name(std::string_view name) {
  return name.substr(0, kBeginning.size()) == kBeginning;
}

Result<std::shared_ptr<CastSource>> CastSource::open(const CastPlace& place, std::string name) {
  STDCHK_ASSIGN(const multicast::SourceOptions options, options_of(place, name));
  const std::shared_ptr<CastSource> made(new CastSource(std::move(name)));
  STDCHK_ASSIGN(made->fetcher_, multicast::Fetcher::open(options, made->clock_));
  return made;
}

Result<std::shared_ptr<CastSource>> CastSource::reopen(const CastPlace& place, std::string name,
                                                       std::uint64_t image_bytes) {
  STDCHK_ASSIGN(const multicast::SourceOptions options, options_of(place, name));
  const std::shared_ptr<CastSource> made(new CastSource(std::move(name)));
  STDCHK_ASSIGN(made->fetcher_, multicast::Fetcher::open_later(options, image_bytes, made->clock_));
  return made;
}

}  // namespace stdchk::pager
