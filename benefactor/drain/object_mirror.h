#pragma once

#include <functional>
#include <string>

#include "benefactor/drain/object_assembly.h"
#include "core/messages/messages.h"

namespace stdchk::benefactor {

/// An ObjectMirror repeats changes of names in an object store. ObjectDrainer has the table of what
/// they become.
///
/// Threads: any.
/// Errors: of the store; kDeadline: call it again, and the work goes on.
class ObjectMirror {
 public:
  struct Parts {
    ObjectAssembly::Means means;
    std::string prefix;
    std::uint64_t copied_at_once = 0;  ///< ObjectDrainer::Config
    /// Copies an object that is larger than `copied_at_once`.
    std::function<Outcome<void>(const ObjectAssembly::Goal& goal)> copy_large;
  };
  explicit ObjectMirror(Parts parts) : parts_(std::move(parts)) {}

  Outcome<void> carry_out(const msg::MirrorChange& change, Time deadline) const;

 private:
  std::string key_of(const std::string& path) const;
  Outcome<std::string> place_of(const msg::MirrorChange& change, const std::string& path) const;
  ObjectStore& store() const { return parts_.means.store; }
  Outcome<bool> copy(const std::string& from, const std::string& to,
                     const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> rename(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> rename_folder(const std::string& from, const std::string& to,
                              const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> remove_folder(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> set_attributes(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> put_special(const msg::MirrorChange& change, ObjectKind kind,
                            const std::string& content, Time deadline) const;
  Outcome<void> set_aside(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> link(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> drop(const msg::MirrorChange& change, Time deadline) const;
  Outcome<void> drop_old(std::uint64_t first_used, Time deadline) const;
  Outcome<void> end_unknown_uploads(Time deadline) const;

  const Parts parts_;
};

}  // namespace stdchk::benefactor
