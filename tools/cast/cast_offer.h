#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/api/filesystem.h"
#include "core/crypto/secret.h"
#include "core/values/ids.h"
#include "fork/multicast/sockets.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A CastOffer says where a sender of a Bundle is, and by what each byte is checked.
struct CastOffer {
  multicast::Address sender;
  ChunkName root;    ///< of the manifest of the sent bytes
  ChunkName layout;  ///< of the Bundle
  Secret secret;     ///< of this cast only
  bool operator==(const CastOffer&) const = default;
};
/// The text is a valid name of a file.
std::string to_text(const CastOffer& offer);
std::optional<CastOffer> parse_cast_offer(const std::string& text);

/// A PublishedOffer is a CastOffer in the pool. Members of the pool with the same user find it.
/// It is the name of a folder in a private folder. So its secret is in no command line.
///
/// Owns: both folders, which go with this object. Threads: one at a time.
class PublishedOffer {
 public:
  static Outcome<std::unique_ptr<PublishedOffer>> make(client::Filesystem& filesystem,
                                                       const CastOffer& offer);
  ~PublishedOffer();
  PublishedOffer(const PublishedOffer&) = delete;
  PublishedOffer& operator=(const PublishedOffer&) = delete;

  /// The name by which find_offer() finds it: 16 hexadecimal digits.
  const std::string& name() const { return name_; }

 private:
  PublishedOffer(client::Filesystem& filesystem, std::string name, FileId folder, std::string text)
      : filesystem_(filesystem), name_(std::move(name)), folder_(folder), text_(std::move(text)) {}

  client::Filesystem& filesystem_;
  const std::string name_;
  const FileId folder_;
  const std::string text_;
};
/// Returns the offer of that name. Nothing: its sender has ended.
std::optional<CastOffer> find_offer(client::Filesystem& filesystem, const std::string& name);

/// The host part of a manager's address such as "tcp:10.0.0.1:7471", or of the first of a list.
std::string host_of_manager(const std::string& address);

}  // namespace stdchk::tools
