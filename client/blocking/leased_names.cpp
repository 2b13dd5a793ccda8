#include "client/blocking/leased_names.h"

namespace stdchk::client {

LeasedNames::LeasedNames(BlockingQuestions& questions)
    : questions_(questions), engine_(questions.engine()), calls_(engine_) {}

/// Calls `step` with the lock held until it returns anything but kWouldBlock.
Status LeasedNames::wait(const std::function<Status()>& step) {
  Lock lock(engine_.shared().mutex);
  return questions_.wait(lock, questions_.deadline(), step, &calls_.changed());
}

template <class T>
Result<T> LeasedNames::wait_for(const std::function<Result<T>()>& step) {
  Result<T> out = fail(Code::kWouldBlock, "client.lease");
  STDCHK_TRY(wait([&]() -> Status {
    out = step();
    return out ? Status{} : fail(out.error());
  }));
  return out;
}

Result<std::optional<LeasedNames::Found>> LeasedNames::lookup(Turn& turn, FileId parent,
                                                              std::string_view name) {
  return wait_for<std::optional<Found>>([&] {
    engine_lock.assert_held();
    return calls_.lookup(turn, parent, name);
  });
}

Result<std::optional<Attributes>> LeasedNames::attributes(FileId file) {
  return wait_for<std::optional<Attributes>>([&] {
    engine_lock.assert_held();
    return calls_.attributes(file);
  });
}

Result<std::optional<std::vector<msg::DirectoryEntry>>> LeasedNames::read_directory(
    Turn& turn, FileId directory) {
  return wait_for<std::optional<std::vector<msg::DirectoryEntry>>>([&] {
    engine_lock.assert_held();
    return calls_.read_directory(turn, directory);
  });
}

Result<std::optional<Attributes>> LeasedNames::set_attributes(const msg::SetAttributes& change) {
  return wait_for<std::optional<Attributes>>([&] {
    engine_lock.assert_held();
    return calls_.set_attributes(change);
  });
}

Result<std::optional<Attributes>> LeasedNames::make(Turn& turn, const msg::NameChange& change) {
  return wait_for<std::optional<Attributes>>([&] {
    engine_lock.assert_held();
    return calls_.make(turn, change);
  });
}

Result<std::optional<std::uint32_t>> LeasedNames::remove(Turn& turn, FileId parent,
                                                         std::string_view name, bool directory) {
  if (!directory) STDCHK_TRY(settle_name(parent, name));
  return wait_for<std::optional<std::uint32_t>>([&] {
    engine_lock.assert_held();
    return calls_.remove(turn, parent, name, directory);
  });
}

Result<std::optional<std::uint32_t>> LeasedNames::rename(Turn& turn, const msg::Rename& change) {
  const bool is_itself =
      change.from_parent == change.to_parent && change.from_name == change.to_name;
  if (!is_itself && !change.no_replace && !change.exchange) {
    STDCHK_TRY(settle_name(change.to_parent, change.to_name));
  }
  return wait_for<std::optional<std::uint32_t>>([&] {
    engine_lock.assert_held();
    return calls_.rename(turn, change);
  });
}

Result<std::optional<LeasedNames::Created>> LeasedNames::create(Turn& turn, FileId parent,
                                                                std::string_view name,
                                                                bool exclusive, Owner owner) {
  return wait_for<std::optional<Created>>([&] {
    engine_lock.assert_held();
    return calls_.create(turn, parent, name, exclusive, owner);
  });
}

Status LeasedNames::leave(Turn& turn, FileId directory, FileId file) {
  return wait([&] {
    engine_lock.assert_held();
    return calls_.leave(turn, directory, file);
  });
}

Status LeasedNames::leave_all() {
  return wait([&] {
    engine_lock.assert_held();
    return calls_.leave_all();
  });
}

Status LeasedNames::sync() {
  std::optional<LeasedCalls::SyncPoint> point;
  return wait([&]() -> Status {
    engine_lock.assert_held();
    if (!point) point = calls_.begin_sync();
    return calls_.end_sync(*point);
  });
}

Status LeasedNames::store(EmptyOpen& open) {
  return wait([&] {
    engine_lock.assert_held();
    return calls_.store(open);
  });
}

/// An open, empty file gets a session before it loses its name. The condition of the session's open
/// is not that of the leases, so this wait comes first.
Status LeasedNames::settle_name(FileId parent, std::string_view name) {
  Lock lock(engine_.shared().mutex);
  STDCHK_ASSIGN(const EmptyOpenPtr open, calls_.begin_settling(parent, name));
  if (open == nullptr) return {};
  const auto opening = open->opening;
  return wait_for_answer(lock, opening);
}

Status LeasedNames::settle(FileId file) {
  Lock lock(engine_.shared().mutex);
  const EmptyOpenPtr open = calls_.empty_open(file);
  if (open == nullptr) return {};
  STDCHK_TRY(calls_.start_session(*open));
  const auto opening = open->opening;
  STDCHK_TRY(wait_for_answer(lock, opening));
  return *opening->status;
}

/// An error of the open is left to those who use the file. Another thread may open anew meanwhile.
Status LeasedNames::wait_for_answer(Lock& lock, const std::shared_ptr<Engine::Opening>& opening) {
  return questions_.wait(
      lock, questions_.deadline(),
      [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        return opening->status.has_value() ? Status{} : fail(Code::kWouldBlock, "client.open");
      },
      &opening->answered);
}

}  // namespace stdchk::client
