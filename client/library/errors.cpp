// The last failure of each thread, and the C interface's numbers of errors.
#include "client/library/errors.h"

#include <cerrno>
#include <cstring>

#include "client/api/stdchk.h"
#include "core/base/error_codes.h"

namespace stdchk::client::library {
namespace {

/// The last failure of this thread.
struct LastFailure {
  std::string text;
  int code = STDCHK_ERROR_NONE;
};
thread_local LastFailure last_failure;

int remember(std::string text, int code, int os_errno) {
  last_failure = {std::move(text), code};
  errno = os_errno;
  return -1;
}

/// A code's row of the table in core/base/error_codes.h.
struct Row {
  int number;
  const char* name;
  const char* sentence;
  Retry retry;
};
constexpr Row kRows[] = {{0, "kNone", "No call has failed.", Retry::kNo},
#define STDCHK_ROW(name, number, os, retry, text) {number, #name, text, Retry::retry},
                         STDCHK_ERROR_CODES(STDCHK_ROW)
#undef STDCHK_ROW
};

const Row* row_of(int code) {
  for (const Row& row : kRows) {
    if (row.number == code) return &row;
  }
  return nullptr;
}

// stdchk.h gives each error code the number that core/base/error_codes.h gives it.
static_assert(STDCHK_ERROR_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(STDCHK_ERROR_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(STDCHK_ERROR_NOT_FOUND == static_cast<int>(Code::kNotFound));
static_assert(STDCHK_ERROR_EXISTS == static_cast<int>(Code::kExists));
static_assert(STDCHK_ERROR_NOT_DIRECTORY == static_cast<int>(Code::kNotDirectory));
static_assert(STDCHK_ERROR_IS_DIRECTORY == static_cast<int>(Code::kIsDirectory));
static_assert(STDCHK_ERROR_NOT_EMPTY == static_cast<int>(Code::kNotEmpty));
static_assert(STDCHK_ERROR_NAME_TOO_LONG == static_cast<int>(Code::kNameTooLong));
static_assert(STDCHK_ERROR_PERMISSION == static_cast<int>(Code::kPermission));
static_assert(STDCHK_ERROR_NO_SPACE == static_cast<int>(Code::kNoSpace));
static_assert(STDCHK_ERROR_DEADLINE == static_cast<int>(Code::kDeadline));
static_assert(STDCHK_ERROR_PEER_LOST == static_cast<int>(Code::kPeerLost));
static_assert(STDCHK_ERROR_MANAGER_LOST == static_cast<int>(Code::kManagerLost));
static_assert(STDCHK_ERROR_REFUSED == static_cast<int>(Code::kRefused));
static_assert(STDCHK_ERROR_FENCED == static_cast<int>(Code::kFenced));
static_assert(STDCHK_ERROR_STALE == static_cast<int>(Code::kStale));
static_assert(STDCHK_ERROR_CORRUPT == static_cast<int>(Code::kCorrupt));
static_assert(STDCHK_ERROR_DATA_LOST == static_cast<int>(Code::kDataLost));
static_assert(STDCHK_ERROR_TOO_LARGE == static_cast<int>(Code::kTooLarge));
static_assert(STDCHK_ERROR_NO_MEMORY == static_cast<int>(Code::kNoMemory));
static_assert(STDCHK_ERROR_MEMLOCK == static_cast<int>(Code::kMemlock));
static_assert(STDCHK_ERROR_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(STDCHK_ERROR_MALFORMED == static_cast<int>(Code::kMalformed));
static_assert(STDCHK_ERROR_SYSTEM == static_cast<int>(Code::kSystem));
static_assert(STDCHK_ERROR_BUSY == static_cast<int>(Code::kBusy));
static_assert(STDCHK_ERROR_CROSSES_DIRECTORY == static_cast<int>(Code::kCrossesDirectory));
static_assert(STDCHK_ERROR_READ_ONLY == static_cast<int>(Code::kReadOnly));
static_assert(STDCHK_ERROR_NO_ATTRIBUTE == static_cast<int>(Code::kNoAttribute));
static_assert(STDCHK_ERROR_RANGE == static_cast<int>(Code::kRange));
static_assert(STDCHK_ERROR_CONFIG == static_cast<int>(Code::kConfig));
static_assert(STDCHK_ERROR_CANCELLED == static_cast<int>(Code::kCancelled));
static_assert(STDCHK_ERROR_DRAIN_FAILED == static_cast<int>(Code::kDrainFailed));
static_assert(STDCHK_ERROR_WOULD_BLOCK == static_cast<int>(Code::kWouldBlock));

}  // namespace

int failed(const Error& error) {
  return remember(describe(error), static_cast<int>(error.code), to_errno(error));
}

int failed(const Problem& problem) {
  return remember(problem.text, static_cast<int>(problem.error.code), to_errno(problem.error));
}

int failed(Code code, const std::string& text) {
  return remember(text, static_cast<int>(code), to_errno(Error{code, 0, ""}));
}

int failed_system(int os_errno, const std::string& text) {
  return remember(text, STDCHK_ERROR_SYSTEM, os_errno);
}

int ended(const Status& status) { return status.has_value() ? 0 : failed(status.error()); }

}  // namespace stdchk::client::library

using namespace stdchk::client::library;

extern "C" {

const char* stdchk_error(void) { return last_failure.text.c_str(); }

int stdchk_error_code(void) { return last_failure.code; }

const char* stdchk_code_name(int code) {
  const Row* row = row_of(code);
  return row == nullptr ? "Unknown" : row->name + 1;
}

const char* stdchk_code_sentence(int code) {
  const Row* row = row_of(code);
  return row == nullptr ? "This version of the library does not know the error." : row->sentence;
}

int stdchk_code_is_transient(int code) {
  const Row* row = row_of(code);
  return row != nullptr && row->retry != stdchk::Retry::kNo ? 1 : 0;
}

const char* stdchk_version(void) { return STDCHK_VERSION; }

}  // extern "C"
