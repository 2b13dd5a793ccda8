#include "client/blocking/leased_names.h"

namespace stdchk::client {

LeasedNames::LeasedNames(BlockingQuestions& questions)
    : questions_(questions), engine_(questions.engine()), calls_(engine_) {}

/// Repeats the step of a call with the lock held until it returns anything but kWouldBlock.
template <class T, class... Parameters, class... Arguments>
Result<T> LeasedNames::call(Result<T> (LeasedCalls::*step)(Parameters...),
                            Arguments&&... arguments) {
  Lock lock(engine_.shared().mutex);
  Result<T> out = fail(Code::kWouldBlock, "client.lease");
  STDCHK_TRY(wait(lock, [&]() -> Status {
    out = (calls_.*step)(arguments...);
    return out.has_value() ? Status{} : fail(out.error());
  }));
  return out;
}

Status LeasedNames::wait(Lock& lock, const std::function<Status()>& step) {
  return questions_.wait(lock, questions_.deadline(), step, &calls_.changed());
}

Result<std::optional<LeasedNames::Found>> LeasedNames::lookup(Turn& turn, FileId parent,
                                                              std::string_view name) {
  return call(&LeasedCalls::lookup, turn, parent, name);
}

Result<std::optional<Attributes>> LeasedNames::attributes(FileId file) {
  return call(&LeasedCalls::attributes, file);
}

Result<std::optional<std::vector<msg::DirectoryEntry>>> LeasedNames::read_directory(
    Turn& turn, FileId directory) {
  return call(&LeasedCalls::read_directory, turn, directory);
}

Result<std::optional<Attributes>> LeasedNames::set_attributes(const msg::SetAttributes& change) {
  return call(&LeasedCalls::set_attributes, change);
}

Result<std::optional<Attributes>> LeasedNames::make(Turn& turn, const msg::NameChange& change) {
  return call(&LeasedCalls::make, turn, change);
}

Result<std::optional<std::uint32_t>> LeasedNames::remove(Turn& turn, FileId parent,
                                                         std::string_view name, bool directory) {
  if (!directory) STDCHK_TRY(settle_name(parent, name));
  return call(&LeasedCalls::remove, turn, parent, name, directory);
}

Result<std::optional<std::uint32_t>> LeasedNames::rename(Turn& turn, const msg::Rename& change) {
  const bool is_itself =
      change.from_parent == change.to_parent && change.from_name == change.to_name;
  if (!is_itself && !change.no_replace && !change.exchange) {
    STDCHK_TRY(settle_name(change.to_parent, change.to_name));
  }
  return call(&LeasedCalls::rename, turn, change);
}

Result<std::optional<LeasedNames::Created>> LeasedNames::create(Turn& turn, FileId parent,
                                                                std::string_view name,
                                                                bool exclusive, Owner owner) {
  return call(&LeasedCalls::create, turn, parent, name, exclusive, owner);
}

Status LeasedNames::leave(Turn& turn, FileId directory, FileId file) {
  return call(&LeasedCalls::leave, turn, directory, file);
}

Status LeasedNames::leave_all() { return call(&LeasedCalls::leave_all); }

Status LeasedNames::store(EmptyOpen& open) { return call(&LeasedCalls::store, open); }

Status LeasedNames::sync() {
  Lock lock(engine_.shared().mutex);
  const LeasedCalls::SyncPoint point = calls_.begin_sync();
  return wait(lock, [&]() STDCHK_REQUIRES(engine_lock) { return calls_.end_sync(point); });
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
