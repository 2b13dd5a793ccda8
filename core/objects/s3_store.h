#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/objects/object_place.h"
#include "core/objects/object_store.h"

namespace stdchk {

/// An S3Store is an ObjectStore that speaks the S3 protocol over HTTP.
///
/// Each body has a SHA-256 that is signed, and a CRC-32C that the store compares. A request that fails for a passing reason is repeated until the deadline, after a back-off from
/// 0.1 s to 5 s. Passing reasons are status 408, 429 and 5xx, SlowDown, lost and silent connections,
/// and damaged bodies. A
/// refusal because of the clock is repeated with the store's time. Expired credentials are looked up
/// again.
///
/// Owns: idle connections. Threads: any.
/// Errors: as ObjectStore. A request whose bytes the store finds damaged kDamagedMax times is EILSEQ.
/// Limits: `rate` limits nothing here; callers pace their bytes.
class S3Store final : public ObjectStore {
 public:
  static constexpr int kDamagedMax = 4;

  /// `clock` must outlive this. `stopped`: true when the owner ends, may be empty.
  /// Errors: kUnsupported without libcurl, kConfig without credentials.
  static Outcome<std::unique_ptr<ObjectStore>> open(ObjectPlace place, const Clock& clock,
                                                    std::function<bool()> stopped);
  ~S3Store() override;

  Outcome<std::string> put(const std::string& key, ByteSpan bytes, const ObjectMetadata& metadata,
                           const Condition& condition, Time deadline) override;
  Outcome<void> get(const std::string& key, const Range& range, Time deadline) override;
  Outcome<Found> find(const std::string& key, Time deadline) override;
  Outcome<void> remove(const std::string& key, Time deadline) override;
  Outcome<Page> list(const std::string& prefix, const std::string& from, Time deadline) override;
  Outcome<void> copy(const std::string& from, const std::string& to,
                     const std::optional<ObjectMetadata>& metadata, Time deadline) override;
  Outcome<std::string> begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                    Time deadline) override;
  Outcome<Part> upload_part(const Upload& upload, std::uint32_t number, ByteSpan bytes,
                            Time deadline) override;
  Outcome<void> complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                Time deadline) override;
  Outcome<void> abort_upload(const Upload& upload, Time deadline) override;
  Outcome<std::vector<Upload>> uploads(const std::string& prefix, Time deadline) override;
  Outcome<std::vector<Part>> parts(const Upload& upload, Time deadline) override;

 private:
  struct Parts;
  explicit S3Store(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> of_;
};

/// Opens the store of `place`.
inline Outcome<std::unique_ptr<ObjectStore>> open_object_store(const ObjectPlace& place,
                                                               const Clock& clock,
                                                               std::function<bool()> stopped = {}) {
  return S3Store::open(place, clock, std::move(stopped));
}

}  // namespace stdchk
