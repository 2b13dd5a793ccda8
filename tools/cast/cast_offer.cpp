#include "tools/cast/cast_offer.h"

#include <unistd.h>

#include "core/base/units.h"
#include "core/files/pool_files.h"
#include "core/policy/reserved_names.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kNameBytes = 8;

}  // namespace

std::string to_text(const CastOffer& offer) {
  return fmt::format("{}_{}_{}_{}", multicast::address_text(offer.sender),
                     hex_text(offer.root.bytes), hex_text(offer.layout.bytes),
                     hex_text(offer.secret.bytes));
}

std::optional<CastOffer> parse_cast_offer(const std::string& text) {
  const std::vector<std::string> words = split(text, '_');
  if (words.size() != 4) return std::nullopt;
  const auto sender = multicast::parse_address(words[0]);
  CastOffer offer;
  if (!sender || sender->port == 0 || !parse_hex(words[1], offer.root.bytes) ||
      !parse_hex(words[2], offer.layout.bytes) || !parse_hex(words[3], offer.secret.bytes)) {
    return std::nullopt;
  }
  offer.sender = *sender;
  // Refuses other spellings of the same offer, such as an additional `_` at the end.
  return to_text(offer) == text ? std::optional(offer) : std::nullopt;
}

Outcome<std::unique_ptr<PublishedOffer>> PublishedOffer::make(client::Filesystem& filesystem,
                                                              const CastOffer& offer) {
  const client::Owner own{0700, ::getuid(), ::getgid()};
  const std::string name = random_hex(kNameBytes);
  const auto folder = filesystem.make_directory(kRootFile, std::string(kCastPrefix) + name, own);
  if (!folder) return failed("the offer of a multicast", folder.error());
  std::unique_ptr<PublishedOffer> made(
      new PublishedOffer(filesystem, name, folder->id, to_text(offer)));
  const auto entry = filesystem.make_directory(folder->id, made->text_, own);
  if (!entry) return failed("the offer of a multicast", entry.error());
  return made;
}

PublishedOffer::~PublishedOffer() {
  static_cast<void>(filesystem_.remove(folder_, text_, true));
  static_cast<void>(filesystem_.remove(kRootFile, std::string(kCastPrefix) + name_, true));
}

std::optional<CastOffer> find_offer(client::Filesystem& filesystem, const std::string& name) {
  const auto folder = filesystem.lookup_fresh(kRootFile, std::string(kCastPrefix) + name);
  // Another user's offer could send this user's nodes to any address.
  if (!folder || folder->type != FileType::kDirectory || folder->uid != ::getuid()) {
    return std::nullopt;
  }
  const auto entries = filesystem.read_directory(folder->id);
  if (!entries || entries->size() != 1) return std::nullopt;
  return parse_cast_offer(entries->front().name);
}

std::string host_of_manager(const std::string& address) {
  const std::string first = address.substr(0, address.find(','));
  const std::size_t end = first.rfind(':');
  if (end == std::string::npos || end == 0) return {};
  const std::size_t begin = first.rfind(':', end - 1);
  if (begin == std::string::npos) return {};
  return first.substr(begin + 1, end - begin - 1);
}

}  // namespace stdchk::tools
