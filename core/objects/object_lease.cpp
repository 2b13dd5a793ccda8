#include "core/objects/object_lease.h"

#include <cerrno>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "core/files/lease_text.h"

namespace stdchk {
namespace {

constexpr std::uint64_t kTextBytesMax = 4096;
constexpr int kReadsMax = 3;

bool is_changed(const Problem& problem) {
  return is_absent(problem) || problem.error.os_errno == EEXIST;
}

}  // namespace

ObjectLease::ObjectLease(Open open, std::string name, std::string key, LeaseHolder own,
                         bool inherits, const Clock& clock)
    : open_(std::move(open)),
      name_(std::move(name)),
      key_(std::move(key)),
      own_(std::move(own)),
      clock_(clock),
      inherits_(inherits) {}

LeaseSteps::State ObjectLease::unknown(const Problem& problem) {
  reason_ = problem.text;
  return State::kUnknown;
}

Outcome<std::optional<ObjectLease::Text>> ObjectLease::read() {
  auto there = read_once();
  // The lease was renewed, or taken, between the two requests of a read.
  for (int again = 1; again < kReadsMax && !there && is_changed(there.error()); ++again) {
    there = read_once();
  }
  return there;
}

Outcome<std::optional<ObjectLease::Text>> ObjectLease::read_once() {
  using Read = std::optional<Text>;
  const auto found = store_->find(key_, deadline());
  if (!found && is_absent(found.error())) return Read();
  if (!found) return problem(found.error());
  if (found->size_bytes > kTextBytesMax) return Read(Text{"", found->etag});
  Text out{std::string(found->size_bytes, '\0'), found->etag};
  const auto bytes = std::as_writable_bytes(std::span(out.text.data(), out.text.size()));
  // The condition makes sure that text and etag belong together.
  if (auto got = store_->get(key_, {0, bytes, found->etag}, deadline()); !got) {
    return problem(got.error());
  }
  return Read(std::move(out));
}

LeaseSteps::State ObjectLease::step(Time now) {
  if (store_ == nullptr) {
    auto opened = open_();
    if (!opened) return unknown(opened.error());
    store_ = std::move(*opened);
  }
  // While no other pool writes the lease, a renewal needs one request.
  if (!etag_.empty() && has_conditions_) {
    const State renewed = write({false, etag_});
    if (renewed != State::kOthers) return renewed;
    etag_.clear();
  }
  return look(now);
}

/// Reads the lease, and takes or renews it if it may.
LeaseSteps::State ObjectLease::look(Time now) {
  const auto there = read();
  if (!there) return unknown(there.error());
  if (!*there) return write({has_conditions_, ""});
  const Text& lease = **there;
  seen_ = parse_lease(lease.text);
  const ObjectStore::Condition same{false, has_conditions_ ? lease.etag : ""};
  const bool heir = inherits_ && seen_.pool == own_.pool;
  if (seen_.manager == own_.manager || heir) return write(same);
  if (!watch_.is_free(lease.text, seen_, now)) return State::kOthers;
  return write(same);
}

/// Writes the lease of this process, if the condition holds.
LeaseSteps::State ObjectLease::write(const ObjectStore::Condition& condition) {
  const std::string text = lease_text(own_, ++renewals_);
  const auto bytes = std::as_bytes(std::span(text));
  auto etag = store_->put(key_, bytes, {}, condition, deadline());
  if (!etag && etag.error().error.os_errno == ENOSYS && has_conditions_) {
    has_conditions_ = false;
    checked_conditions_ = true;
    log::warning(
        "{} has no conditional writes, so two pools that begin at the same moment may both drain "
        "there",
        name_);
    etag = store_->put(key_, bytes, {}, {}, deadline());
  }
  // An absent lease, whose condition was its etag, is looked for again by the next step.
  if (!etag && (etag.error().error.os_errno == EEXIST || is_absent(etag.error()))) {
    return State::kOthers;
  }
  if (!etag) return unknown(etag.error());
  if (has_conditions_ && !std::exchange(checked_conditions_, true)) {
    // Some stores ignore conditions. A write that must fail tells.
    const auto again = store_->put(key_, bytes, {}, {true, ""}, deadline());
    if (again) {
      has_conditions_ = false;
      etag = *again;
      log::warning(
          "{} ignores conditions of writes, so two pools that begin at the same moment may both "
          "drain there",
          name_);
    }
  }
  etag_ = *etag;
  inherits_ = false;
  watch_.reset();
  return State::kOurs;
}

void ObjectLease::release() {
  if (etag_.empty() || store_ == nullptr) return;
  etag_.clear();
  const auto there = read();
  if (there && *there && parse_lease((*there)->text) == own_) {
    (void)store_->remove(key_, deadline());
  }
}

}  // namespace stdchk
